struct Params {
  rows: u32,
  columns: u32,
}
