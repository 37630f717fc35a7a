//! use index
//! use q4_sizes
//! use q4_result
//! loops: ceil(PARTS, BLOCK)
//! extent sums: PARTS * rows * columns
//! extent out: rows * (columns - OTHERS)
// A product with 4-bit weights (lib/q4_result.wgsl) from the sums of its parts, which lie [part][m][n]. One
// invocation finishes one output.
const WORKGROUP = 256u;
const BLOCK = 16u; // parts that are asked for together

@group(0) @binding(8) var<storage, read> sums: array<f32>;

@compute @workgroup_size(WORKGROUP)
fn main(@builtin(global_invocation_id) id: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>) {
  let i = flat_index(id, groups);
  let count = params.rows * params.columns;
  if (i >= count) { return; }
  var total = 0.0;
  for (var first = 0u; first < PARTS; first += BLOCK) {
    var sum = 0.0;
    //! unroll
    for (var p = 0u; p < BLOCK; p++) {
      if (first + p < PARTS) { sum += sums[(first + p) * count + i]; }
    }
    total += sum;
  }
  store(0u, i / params.columns, i % params.columns, total);
}
