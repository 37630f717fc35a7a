//! use nan
//! use sinks
// Merges the splits of a context: Σ values · exp(most - greatest) / Σ total · exp(most - greatest), where `most` is
// the maximum score of a split and `greatest` the maximum of all splits. For each (query, split), `parts` holds WIDTH
// sums of weighted values, the maximum score, the sum of the weights, and two unused floats. Merging takes
// 2 · `used` iterations.

// An element of a query's result, merged from its splits at `base`; NaN if the query saw no key.
fn merged_element(base: u32, used: u32, element: u32, head: u32) -> f32 {
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
  total = with_sink(total, most, head);
  return sum * select(1.0 / total, nan(), total == 0.0);
}
