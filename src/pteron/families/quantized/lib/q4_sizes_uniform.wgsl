// Sizes in place of lib/q4_sizes.wgsl where a launch computes but some rows and columns.
struct Params {
  rows: u32,
  columns: u32,
  first_row: u32,
  first_column: u32,
}
