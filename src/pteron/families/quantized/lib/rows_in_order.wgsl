//! extent order: rows
//! extent band_table: 4 * (rows // HEIGHT + MATRICES)
// The rows of tiles, in bands of HEIGHT that have one matrix: adjacent rows; or rows grouped by the matrix that they are
// multiplied with, m % MATRICES or as group_rows.wgsl has found. Bands at the end of its table may be empty.
import super::q4_params::{params};
import super::experts::{MATRICES};

struct Band { first: u32, end: u32, matrix: u32 } // places of the rows from `first` on with one matrix

@group(0) @binding(24) var<storage, read> order: array<u32>;
@group(0) @binding(25) var<storage, read> band_table: array<vec4<u32>>;

@if(IN_TURN) fn rows_each() -> u32 { return params.rows / MATRICES; }
@if(IN_TURN) fn bands_each() -> u32 { return (rows_each() + HEIGHT - 1u) / HEIGHT; }

fn bands() -> u32 {
  @if(order) return params.rows / HEIGHT + MATRICES;
  @elif(IN_TURN) return MATRICES * bands_each();
  @else return (params.rows + HEIGHT - 1u) / HEIGHT;
}

fn band_of(index: u32) -> Band {
  @if(order) {
    let found = band_table[index];
    return Band(found.x, found.y, found.z);
  }
  @elif(IN_TURN) {
    let matrix = index / bands_each();
    return Band(matrix * rows_each() + index % bands_each() * HEIGHT, (matrix + 1u) * rows_each(), matrix);
  }
  @else return Band(index * HEIGHT, params.rows, 0u);
}

fn row_at(place: u32) -> u32 {
  @if(order) return order[place];
  @elif(IN_TURN) return place % rows_each() * MATRICES + place / rows_each();
  @else return place;
}
