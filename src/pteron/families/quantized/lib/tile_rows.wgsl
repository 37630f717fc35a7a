// Stores the outputs of tiles (lib/tile.wgsl) whose invocations have TALL rows of one quad of columns or two
// (lib/tile_lanes.wgsl). If gated, an invocation has a gate and its value: in its two quads, or in the halves of its
// only quad.
import package::wgsl::lib::tile_lanes::{ACROSS, DOWN, WIDE};
import super::tile::{IS_GATED, Tile};
import super::rows_in_order::{row_at};
import super::q4_params::{params};
import super::q4_result::{OTHERS, store_gated, store_gated_pair, store_quad};

// The place of row t of an invocation (lib/rows_in_order.wgsl).
fn place_of(tile: Tile, position: vec2<u32>, t: u32) -> u32 {
  return tile.m + (position.y + t / 4u * DOWN) * 4u + t % 4u;
}

// Stores row t of an invocation's outputs, one quad or two, if inside the matrix.
fn store_row(tile: Tile, position: vec2<u32>, t: u32, first: vec4<f32>, second: vec4<f32>) {
  let place = place_of(tile, position, t);
  if (place >= tile.end) { return; }
  let m = row_at(place);
  let n = tile.n + position.x * select(4u, WIDE / 2u, IS_GATED);
  @if(IS_GATED) {
    if (n < OTHERS && WIDE == 8u) { store_gated(m, n, first, second); }
    if (n < OTHERS && WIDE == 4u) { store_gated_pair(m, n, first.xy, first.zw); }
  }
  @else {
    if (n < params.columns) { store_quad(tile.part, m, n, first); }
    if (WIDE == 8u && n + ACROSS * 4u < params.columns) { store_quad(tile.part, m, n + ACROSS * 4u, second); }
  }
}
