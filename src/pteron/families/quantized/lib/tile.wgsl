//! use rows_in_order
//! use tile_lanes
// Products by tiles (lib/tile_lanes.wgsl) of one part. Tiles are numbered along the columns, then by bands of rows, then
// by part, in a grid that may be folded.
//
// If gated, the first half of the columns are gates and the second half, OTHERS columns, values. Half of a tile's
// columns are gates, so that an invocation has a gate and its value: in its two quads, or in the halves of its only
// quad.
const IS_GATED = false;
const GATES_WIDTH = WIDTH / 2u;

struct Tile {
  m: u32, // first row, in the order of rows_in_order
  end: u32, // of the rows that have the same matrix
  matrix: u32, // its first row of weights
  n: u32, // first column
  part: u32,
}

fn tile_of(group: vec3<u32>, groups: vec3<u32>) -> Tile {
  let index = group.x + group.y * groups.x;
  let across = (params.columns + WIDTH - 1u) / WIDTH;
  let band = band_of(index / across % bands());
  let matrix = band.matrix * select(params.columns, OTHERS, IS_GATED);
  let n = index % across * select(WIDTH, GATES_WIDTH, IS_GATED);
  return Tile(band.first, band.end, matrix, n, index / across / bands());
}

// The row of weights of a tile's column; past the end, the last row.
fn weights_row(tile: Tile, column_in_tile: u32) -> u32 {
  if (!IS_GATED) { return tile.matrix + min(tile.n + column_in_tile, params.columns - 1u); }
  let column = select(column_in_tile / 4u * 2u + column_in_tile % 2u, column_in_tile % GATES_WIDTH, WIDE == 8u);
  let second = select(column_in_tile / 2u % 2u, column_in_tile / GATES_WIDTH, WIDE == 8u);
  return tile.matrix + min(tile.n + column, OTHERS - 1u) + second * MATRICES * OTHERS;
}

// The place of an invocation's outputs t in the order of rows.
fn place_of(tile: Tile, position: vec2<u32>, t: u32) -> u32 {
  return tile.m + (position.y + t / 4u * DOWN) * 4u + t % 4u;
}

// Stores row t of an invocation's outputs, one quad or two, if inside the matrix.
fn store_row(tile: Tile, position: vec2<u32>, t: u32, first: vec4<f32>, second: vec4<f32>) {
  let place = place_of(tile, position, t);
  if (place >= tile.end) { return; }
  let m = row_at(place);
  let n = tile.n + position.x * select(4u, WIDE / 2u, IS_GATED);
  if (IS_GATED) {
    if (n < OTHERS && WIDE == 8u) { store_gated(m, n, first, second); }
    if (n < OTHERS && WIDE == 4u) { store_gated_pair(m, n, first.xy, first.zw); }
    return;
  }
  if (n < params.columns) { store_quad(tile.part, m, n, first); }
  if (WIDE == 8u && n + ACROSS * 4u < params.columns) { store_quad(tile.part, m, n + ACROSS * 4u, second); }
}
