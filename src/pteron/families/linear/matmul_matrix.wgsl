//! loops: ceil(span, STEP) + HEIGHT * WIDTH // (4 * WORKGROUP) * ceil(span, 4)
// A matrix product (lib/matmul.wgsl, lib/matmul_loads.wgsl) by tiles of matrices (lib/matrix_walk.wgsl).
import package::wgsl::lib::matrix_tile::{HEIGHT, IS_ALONG, SCALE, WIDTH, WORKGROUP, put_right, put_right_across};
import super::lib::matmul::{params, part_of};
import super::lib::matmul_a::{quad_of_a};
import super::lib::matmul_b::{quad_of_b};
import super::lib::matmul_loads::{A_LOADS, B_LOADS, Loads, STEP, Tile, fetch, quad_at, step_count, tile_of};
import super::lib::matmul_store::{store_quad};
import package::wgsl::lib::matrix_walk::{Seen, seen_right, store_left};

alias Rows = Tile;
const IS_GATED = false;
const X_LOADS = A_LOADS;
const W_LOADS = B_LOADS;

fn is_tile(tile: Tile) -> bool { return tile.slice < params.batch * params.parts; }
fn is_row(tile: Tile, row: u32) -> bool { return tile.m + row < params.rows; }
fn rows_of(tile: Tile, local: u32) -> Rows { return tile; }

fn first_k(tile: Tile) -> u32 { return part_of(tile.slice) * params.span; }
fn end_k(tile: Tile) -> u32 { return min(first_k(tile) + params.span, params.depth); }
fn steps_of(tile: Tile) -> u32 { return step_count(end_k(tile) - first_k(tile)); }

fn fetch_step(tile: Tile, rows: Rows, step: u32, local: u32) -> Loads {
  return fetch(tile, first_k(tile) + step * STEP, local);
}

fn right_place(local: u32, i: u32) -> vec2<u32> { return quad_at(local + i * WORKGROUP, WIDTH, IS_ALONG); }
fn right_column(local: u32, i: u32) -> u32 { return right_place(local, i).x; }

fn store_loads(loads: Loads, local: u32, before: Seen) -> Seen {
  var seen = before;
  seen.left = store_left(loads.a, local, before.left);
  //! unroll
  for (var i = 0u; i < B_LOADS; i++) {
    let at = right_place(local, i);
    if (WIDTH * STEP / 4u % WORKGROUP == 0u || local + i * WORKGROUP < WIDTH * STEP / 4u) {
      let scaled = loads.b[i] * SCALE;
      if (IS_ALONG) { put_right(at.x, at.y, scaled); } else { put_right_across(at.x, at.y, scaled); }
      seen.right[i] = seen_right(before.right[i], scaled);
    }
  }
  return seen;
}

fn float_sums(tile: Tile, row: u32, column: u32) -> vec4<f32> {
  var sums = vec4(0.0);
  for (var k = first_k(tile); k < end_k(tile); k += 4u) {
    let left = quad_of_a(tile.z, tile.m + row, k);
    //! unroll
    for (var e = 0u; e < 4u; e++) {
      if (IS_ALONG) {
        sums[e] += dot(left, quad_of_b(tile.z, k, tile.n + column + e));
      } else {
        sums = fma(vec4(left[e]), quad_of_b(tile.z, k + e, tile.n + column), sums);
      }
    }
  }
  return sums;
}

fn store_columns(tile: Tile, row: u32, column: u32, sums: vec4<f32>, values: vec4<f32>) {
  store_quad(tile.slice, tile.m + row, tile.n + column, sums);
}
