// The rows of tiles: adjacent ones, all with the same matrix. lib/rows_grouped.wgsl replaces it for several matrices.
struct Band { first: u32, end: u32, matrix: u32 } // places of the rows from `first` on with one matrix

fn bands() -> u32 { return (params.rows + HEIGHT - 1u) / HEIGHT; }
fn band_of(index: u32) -> Band { return Band(index * HEIGHT, params.rows, 0u); }
fn row_at(place: u32) -> u32 { return place; }
