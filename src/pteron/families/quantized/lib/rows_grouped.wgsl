//! extent order: rows
//! extent band_table: 4 * (rows // HEIGHT + MATRICES)
// The rows of tiles, grouped by matrix (group_rows.wgsl): a tile has rows with the same matrix. Bands at the end of the
// table may be empty.
struct Band { first: u32, end: u32, matrix: u32 } // places of the rows from `first` on with one matrix

@group(0) @binding(24) var<storage, read> order: array<u32>;
@group(0) @binding(25) var<storage, read> band_table: array<vec4<u32>>;

fn bands() -> u32 { return params.rows / HEIGHT + MATRICES; }

fn band_of(index: u32) -> Band {
  let found = band_table[index];
  return Band(found.x, found.y, found.z);
}

fn row_at(place: u32) -> u32 { return order[place]; }
