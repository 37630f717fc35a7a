//! loops: (1 + TILE) * (ceil(span, STEP) + ceil(span, BLOCK)) + 9 * TILE
// A matrix product (lib/matmul.wgsl). One invocation computes TILE rows of eight columns, directly from global
// memory: no barriers, which is fastest on software adapters and for narrow matrices. It adds up BLOCK products at a
// time, then the blocks. Its columns are `strips` apart, so that adjacent invocations read adjacent elements.
//
// If k runs along rows of both factors, it takes four k at a time (A_QUADS and B_QUADS): on software adapters a load of four
// costs little more than two of one.
import package::wgsl::lib::index::{flat_index};
import super::lib::matmul::{batch_of, params, part_of};
@if(A_QUADS) import super::lib::matmul_a::{quad_of_a};
@else import super::lib::matmul_a::{load_a};
@if(B_QUADS) import super::lib::matmul_b::{quad_of_b};
@else import super::lib::matmul_b::{load_b};
import super::lib::matmul_store::{store};

override TILE: u32 = 8u;
const BLOCK = 64u;
@if(A_QUADS && B_QUADS) const WORKGROUP = 8u; // the lanes of a vector, or of two
@else const WORKGROUP = 64u;
@if(A_QUADS && B_QUADS) const STEP = 4u; // k at a time
@else const STEP = 1u;

// Four columns of b from n on, `strips` apart: of row k or, in the columns of a matrix, of rows k to k + 3. Past the last
// column, the last.
@if(A_QUADS && B_QUADS)
fn four_of_b(z: u32, k: u32, n: u32, strips: u32) -> mat4x4<f32> {
  return mat4x4<f32>(
    quad_of_b(z, k, n),
    quad_of_b(z, k, n + strips),
    quad_of_b(z, k, n + 2u * strips),
    quad_of_b(z, k, n + 3u * strips),
  );
}
@else
fn four_of_b(z: u32, k: u32, n: u32, strips: u32) -> vec4<f32> {
  let last = params.columns - 1u;
  return vec4<f32>(
    load_b(z, k, min(n, last)),
    load_b(z, k, min(n + strips, last)),
    load_b(z, k, min(n + 2u * strips, last)),
    load_b(z, k, min(n + 3u * strips, last)),
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
    for (var k = k_block; k < min(k_block + BLOCK, k_end); k += STEP) {
      let left = four_of_b(z, k, n, strips);
      let right = four_of_b(z, k, n + 4u * strips, strips);
      for (var t = 0u; t < TILE; t++) {
        @if(A_QUADS && B_QUADS) {
          let row = quad_of_a(z, first + min(t, last), k);
          block[t] += mat2x4<f32>(row * left, row * right);
        }
        @else block[t] += load_a(z, first + min(t, last), k) * mat2x4<f32>(left, right);
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
