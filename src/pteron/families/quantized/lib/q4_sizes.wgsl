// Sizes of a product with weights of few bits.
struct Params {
  rows: u32,
  columns: u32,
}
