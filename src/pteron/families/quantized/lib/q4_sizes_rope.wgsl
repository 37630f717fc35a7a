// The sizes of a product whose columns are rotated by their position: lib/q4_rope.wgsl.
struct Params {
  rows: u32,
  columns: u32,
  steps: u32, // rows of a batch
  rotary: u32,
  angle_columns: u32, // of the tables that a head reads
  start: i32, // the tables' row of the first step
  cache_start: i32, // of the first step, in the caches
  out_stride: u32, // elements between the batches of a cache
  angle_strides: vec2<u32>, // of (step, head), in elements of the tables
}
