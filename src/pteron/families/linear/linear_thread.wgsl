//! use index
//! use matmul
//! use quads_a
//! use quads_b
//! loops: (1 + TILE) * (ceil(span, 4) + ceil(span, BLOCK)) + 9 * TILE
// A matrix product (lib/matmul.wgsl) on software adapters, where k runs along rows of both factors: as
// matmul_thread.wgsl, but with four k at a time. A load of four costs little more there than two of one.
//
// One invocation computes TILE rows of eight columns, `strips` apart. It adds up BLOCK products at a time, then
// the blocks.
const WORKGROUP = 8u; // the lanes of a vector, or of two
const TILE = 8u;
const BLOCK = 64u;

// Four columns, `strips` apart, from n on: a column of the matrix for each. Past the last, the last.
fn four_of_b(z: u32, k: u32, n: u32, strips: u32) -> mat4x4<f32> {
  return mat4x4<f32>(
    quad_of_b(z, k, n),
    quad_of_b(z, k, n + strips),
    quad_of_b(z, k, n + 2u * strips),
    quad_of_b(z, k, n + 3u * strips),
  );
}

@compute @workgroup_size(WORKGROUP)
fn main(@builtin(global_invocation_id) id: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>) {
  let i = flat_index(id, groups);
  let tiles = (params.rows + TILE - 1u) / TILE; // of one column
  let strips = (params.columns + 7u) / 8u; // of one row
  let n = i % strips;
  let first = i / strips % tiles * TILE;
  let slice = i / strips / tiles;
  if (slice >= params.batch * params.parts) { return; }
  let z = batch_of(slice);
  let k_first = part_of(slice) * params.span;
  let k_end = min(k_first + params.span, params.depth);
  let last = min(TILE, params.rows - first) - 1u;
  var sums = array<mat2x4<f32>, TILE>();
  for (var k_block = k_first; k_block < k_end; k_block += BLOCK) {
    var block = array<mat2x4<f32>, TILE>();
    for (var k = k_block; k < min(k_block + BLOCK, k_end); k += 4u) {
      let left = four_of_b(z, k, n, strips);
      let right = four_of_b(z, k, n + 4u * strips, strips);
      for (var t = 0u; t < TILE; t++) {
        let row = quad_of_a(z, first + min(t, last), k);
        block[t] += mat2x4<f32>(row * left, row * right);
      }
    }
    for (var t = 0u; t < TILE; t++) { sums[t] += block[t]; }
  }
  for (var t = 0u; t <= last; t++) {
    for (var c = 0u; c < 8u; c++) {
      let column = n + c * strips;
      if (column < params.columns) { store(slice, first + t, column, sums[t][c / 4u][c % 4u]); }
    }
  }
}
