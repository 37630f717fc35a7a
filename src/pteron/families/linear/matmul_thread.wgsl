//! use index
//! use matmul
// A matrix product (lib/matmul.wgsl). One invocation computes TILE rows of one column, straight from
// memory: no barriers, which is what software adapters and thin matrices want.
const WORKGROUP = 64u;
const TILE = 4u;

@compute @workgroup_size(WORKGROUP)
fn main(@builtin(global_invocation_id) id: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>) {
  let i = flat_index(id, groups);
  let tiles = (params.rows + TILE - 1u) / TILE; // of one column
  let n = i % params.columns;
  let first = i / params.columns % tiles * TILE;
  let z = i / params.columns / tiles;
  if (z >= params.batch) { return; }
  let last = min(TILE, params.rows - first) - 1u;
  var sums = array<f32, TILE>();
  for (var k = 0u; k < params.depth; k++) {
    let weight = load_b(z, k, n);
    for (var t = 0u; t < TILE; t++) { sums[t] += load_a(z, first + min(t, last), k) * weight; }
  }
  for (var t = 0u; t <= last; t++) { store(z, first + t, n, sums[t]); }
}
