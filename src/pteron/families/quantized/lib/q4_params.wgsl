// Sizes of a product with weights of few bits, rows m by columns n, and of what its columns become. Depths are overrides.
struct Params {
  rows: u32,
  columns: u32,
  // Where a launch computes but some of them (q4_uniform.wgsl)
  @if(weights_a) first_row: u32,
  @if(weights_a) first_column: u32,
  // Where columns are queries, keys and values, which are rotated by their position (lib/q4_rope.wgsl)
  @if(q_out) steps: u32, // rows of a batch
  @if(q_out) rotary: u32, // elements of a head that are rotated
  @if(q_out) angle_columns: u32, // of the tables that a head reads
  @if(q_out) start: i32, // the tables' row of the first step
  @if(q_out) cache_start: i32, // of the first step, in the caches
  @if(q_out) out_stride: u32, // elements between the batches of a cache
  @if(q_out) angle_strides: vec2<u32>, // of (step, head), in elements of the tables
}

@group(0) @binding(7) var<uniform> params: Params;
