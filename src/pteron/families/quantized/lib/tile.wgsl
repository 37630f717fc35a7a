// Products by tiles of one part: HEIGHT rows by WIDTH columns, as lib/tile_lanes.wgsl or lib/matrix_tile.wgsl of the kernel
// has them (and IS_HALVED). Tiles are numbered along the columns, then by bands of rows, then by part, in a grid that may
// be folded.
//
// If gated, the first half of the columns are gates and the second half, OTHERS columns, values. Half of a tile's
// columns are gates: its first half, or, if not IS_HALVED, the first two of every quad.
import super::q4_params::{params};
import super::rows_in_order::{Band, bands, band_of, row_at};
import super::experts::{MATRICES};

override IS_GATED: bool = false;
const GATES_WIDTH = WIDTH / 2u;

struct Tile {
  m: u32, // place of the first row: `row_at` of lib/rows_in_order.wgsl says which row it is
  end: u32, // one past the last place of rows with the same matrix
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
  let column = select(column_in_tile / 4u * 2u + column_in_tile % 2u, column_in_tile % GATES_WIDTH, IS_HALVED);
  let second = select(column_in_tile / 2u % 2u, column_in_tile / GATES_WIDTH, IS_HALVED);
  return tile.matrix + min(tile.n + column, OTHERS - 1u) + second * MATRICES * OTHERS;
}
