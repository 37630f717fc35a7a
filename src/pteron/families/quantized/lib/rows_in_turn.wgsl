// The rows of tiles, grouped by matrix, where row m is multiplied with matrix m % MATRICES.
struct Band { first: u32, end: u32, matrix: u32 } // places of the rows from `first` on with one matrix

fn rows_each() -> u32 { return params.rows / MATRICES; }
fn bands_each() -> u32 { return (rows_each() + HEIGHT - 1u) / HEIGHT; }
fn bands() -> u32 { return MATRICES * bands_each(); }

fn band_of(index: u32) -> Band {
  let matrix = index / bands_each();
  return Band(matrix * rows_each() + index % bands_each() * HEIGHT, (matrix + 1u) * rows_each(), matrix);
}

fn row_at(place: u32) -> u32 { return place % rows_each() * MATRICES + place / rows_each(); }
