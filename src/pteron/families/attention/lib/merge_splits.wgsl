//! use nan
// Merges the splits of a context: Σ values · exp(most - greatest) / Σ total · exp(most - greatest).
// `parts` holds for each (query, split) the WIDTH gathered values before they are divided, the greatest score,
// the sum of the shares, and room for two more. Merging takes 2 · `used` iterations.

// An element of a query's result, from its splits, which begin at `base`; NaN where it saw no key.
fn merged_element(base: u32, used: u32, element: u32) -> f32 {
  var most = LOWEST;
  for (var s = 0u; s < used; s++) { most = max(most, parts[base + s * (WIDTH + 4u) + WIDTH]); }
  var sum = 0.0;
  var total = 0.0;
  for (var s = 0u; s < used; s++) {
    let at = base + s * (WIDTH + 4u);
    let weight = exp(parts[at + WIDTH] - most);
    sum = fma(weight, parts[at + element], sum);
    total = fma(weight, parts[at + WIDTH + 1u], total);
  }
  return sum * select(1.0 / total, nan(), total == 0.0);
}
