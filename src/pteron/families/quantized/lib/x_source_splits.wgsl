//! extent parts: rows * (4 * QUADS // WIDTH) * SPLITS * (WIDTH + 4)
// Where rows of x come from: attention, in unmerged splits of its context, as Σ values · exp(most - greatest) / Σ total ·
// exp(most - greatest). `parts` holds for each (batch, head, step, split) the WIDTH gathered values before they are divided,
// the greatest score, the sum of the softmax weights, and room for two more. A row of x is a step, with all heads side by
// side: QUADS vec4s, the kernel's. Every operation is rounded as in the attention family's attention_merge.wgsl, so that
// results do not depend on the kernel that merges.
import package::wgsl::lib::nan::{LOWEST, nan};

override WIDTH: u32 = 64u; // elements per head, a multiple of 8
override SPLITS: u32 = 4u;
override QUERY_STEPS: u32 = 1u; // rows of x in a batch
const ALL = WIDTH / 4u; // vec4s of a head

@group(0) @binding(0) var<storage, read> parts: array<vec4<f32>>;

// Two vec4s of a row, neighbours in a head or its last one twice; NaN where a query saw no key.
fn load_pair(m: u32, quads: vec2<u32>) -> mat2x4<f32> {
  let query = (m / QUERY_STEPS * (QUADS / ALL) + quads.x / ALL) * QUERY_STEPS + m % QUERY_STEPS;
  let base = query * SPLITS * (ALL + 1u);
  var most = LOWEST;
  //! unroll
  for (var s = 0u; s < SPLITS; s++) { most = max(most, parts[base + s * (ALL + 1u) + ALL].x); }
  var low = vec4(0.0);
  var high = vec4(0.0);
  var total = 0.0;
  //! unroll
  for (var s = 0u; s < SPLITS; s++) {
    let at = base + s * (ALL + 1u);
    let end = parts[at + ALL];
    let weight = exp(end.x - most);
    low = fma(vec4(weight), parts[at + quads.x % ALL], low);
    high = fma(vec4(weight), parts[at + quads.y % ALL], high);
    total = fma(weight, end.y, total);
  }
  let inverse = select(1.0 / total, nan(), total == 0.0);
  return mat2x4(low * inverse, high * inverse);
}
