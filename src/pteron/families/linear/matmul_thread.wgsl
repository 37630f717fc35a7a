//! use index
//! use matmul
//! loops: (1 + TILE) * (span + ceil(span, BLOCK)) + TILE
// A matrix product (lib/matmul.wgsl). One invocation computes TILE rows of one column, straight from
// memory: no barriers, which is what software adapters and thin matrices want. It adds up BLOCK products at a
// time, then the blocks.
const WORKGROUP = 64u;
const TILE = 4u;
const BLOCK = 64u;

@compute @workgroup_size(WORKGROUP)
fn main(@builtin(global_invocation_id) id: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>) {
  let i = flat_index(id, groups);
  let tiles = (params.rows + TILE - 1u) / TILE; // of one column
  let n = i % params.columns;
  let first = i / params.columns % tiles * TILE;
  let slice = i / params.columns / tiles;
  if (slice >= params.batch * params.parts) { return; }
  let z = batch_of(slice);
  let k_first = part_of(slice) * params.span;
  let k_end = min(k_first + params.span, params.depth);
  let last = min(TILE, params.rows - first) - 1u;
  var sums = array<f32, TILE>();
  for (var k_block = k_first; k_block < k_end; k_block += BLOCK) {
    var block = array<f32, TILE>();
    for (var k = k_block; k < min(k_block + BLOCK, k_end); k++) {
      let weight = load_b(z, k, n);
      for (var t = 0u; t < TILE; t++) { block[t] += load_a(z, first + min(t, last), k) * weight; }
    }
    for (var t = 0u; t < TILE; t++) { sums[t] += block[t]; }
  }
  for (var t = 0u; t <= last; t++) { store(slice, first + t, n, sums[t]); }
}
