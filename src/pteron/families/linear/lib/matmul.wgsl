//! extent bias: (rows - 1) * bias_row + (first + columns - 1) * bias_column + 1
//! extent addend: (rows - 1) * pitch + first + columns
//! use activation
//! use store_one
// Matrix products: out[z, m, first + n] = activated(alpha · Σ a[z, m, k] · b[z, k, n] + added(m, n)) + addend_of(m, n),
// where there is an addend, a tensor of the shape of out, only if z is 0. matmul_a.wgsl and
// matmul_b.wgsl, or libraries that replace them, load a and b; out has `pitch` columns per row. If k is deep, it is
// split into `parts` of `span` columns: then `store` writes sums, and matmul_merge.wgsl finishes.
alias D = f32;
alias E = f32;
const IS_WHOLE = false; // nothing is read past the last k: for quads_a.wgsl and quads_b.wgsl

struct Params {
  batch: u32,
  rows: u32,
  columns: u32,
  depth: u32,
  parts: u32,
  span: u32,
  b_row: u32, // elements from b[k, n] to b[k + 1, n]
  b_column: u32, // elements from b[k, n] to b[k, n + 1]
  alpha: f32,
  beta: f32,
  bias_row: u32,
  bias_column: u32,
  first: u32,
  pitch: u32,
  // Of a launch of matmul_uniform.wgsl:
  first_row: u32,
  part: u32,
  blocks: u32, // of four columns, in each array
}

@group(0) @binding(2) var<storage, read> bias: array<D>;
@group(0) @binding(7) var<storage, read> addend: array<E>;
@group(0) @binding(4) var<uniform> params: Params;

fn added(m: u32, n: u32) -> f32 {
  return params.beta * f32(bias[m * params.bias_row + (params.first + n) * params.bias_column]);
}

fn addend_of(m: u32, n: u32) -> f32 { return f32(addend[m * params.pitch + params.first + n]); }

// Finishes a sum. For parts it is replaced: the sum is stored unchanged.
fn result(m: u32, n: u32, sum: f32) -> f32 {
  return activated(params.alpha * sum + added(m, n)) + addend_of(m, n);
}

// A slice of the grid is part · batch + z: of a product in one part, just z.
fn part_of(slice: u32) -> u32 { return 0u; }
fn batch_of(slice: u32) -> u32 { return slice; }
