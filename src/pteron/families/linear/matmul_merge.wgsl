//! use index
//! use matmul
//! loops: PARTS + ceil(PARTS, BLOCK)
//! extent sums: PARTS * batch * rows * columns
// A matrix product (lib/matmul.wgsl) from the sums of its PARTS, laid out as [part][z][m][n]. One invocation
// finishes one output.
const WORKGROUP = 64u;
const BLOCK = 64u;
const PARTS = 2u;

@group(0) @binding(5) var<storage, read> sums: array<f32>;

@compute @workgroup_size(WORKGROUP)
fn main(@builtin(global_invocation_id) id: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>) {
  let i = flat_index(id, groups);
  let count = params.batch * params.rows * params.columns;
  if (i >= count) { return; }
  var total = 0.0;
  for (var first = 0u; first < PARTS; first += BLOCK) {
    var sum = 0.0;
    for (var part = first; part < min(first + BLOCK, PARTS); part++) { sum += sums[part * count + i]; }
    total += sum;
  }
  let n = i % params.columns;
  let m = i / params.columns % params.rows;
  store(i / params.columns / params.rows, m, n, total);
}
