//! extent bias: (rows - 1) * bias_row + (first + columns - 1) * bias_column + 1
//! extent addend: (rows - 1) * pitch + first + columns
// Matrix products: out[z, m, first + n] = activation(alpha · Σ a[z, m, k] · b[z, k, n] + beta · bias[m, n]) + addend[m, n].
// There is an addend, a tensor of the shape of out, only if z is 0. lib/matmul_a.wgsl and lib/matmul_b.wgsl load a and b,
// lib/matmul_store.wgsl finishes and stores; out has `pitch` columns per row. If k is deep, a launch computes the sums of
// `parts` parts of it, `span` columns each: partial[part][z][m][n], which matmul_merge.wgsl adds up and finishes.
@if(activation) import package::wgsl::lib::math::{at_least, at_most, erf, tanh_safe};

alias D = f32;
alias E = f32;
override IS_WHOLE: bool = false; // nothing is read past the last k

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

@if(activation) fn activation(x: f32) -> f32;

fn added(m: u32, n: u32) -> f32 {
  @if(bias) return params.beta * f32(bias[m * params.bias_row + (params.first + n) * params.bias_column]);
  @else return 0.0;
}

fn activated(x: f32) -> f32 {
  @if(activation) return activation(x);
  @else return x;
}

fn addend_of(m: u32, n: u32) -> f32 {
  @if(addend) return f32(addend[m * params.pitch + params.first + n]);
  @else return 0.0;
}

fn result(m: u32, n: u32, sum: f32) -> f32 {
  return activated(params.alpha * sum + added(m, n)) + addend_of(m, n);
}

// A slice of the grid is part · batch + z: of a product in one part, just z.
fn part_of(slice: u32) -> u32 {
  @if(partial) return slice / params.batch;
  @else return 0u;
}

fn batch_of(slice: u32) -> u32 {
  @if(partial) return slice % params.batch;
  @else return slice;
}
