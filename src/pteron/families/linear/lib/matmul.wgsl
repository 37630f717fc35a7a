//! extent bias: (rows - 1) * bias_row + (first + columns - 1) * bias_column + 1
//! extent out: (parts * batch * rows - 1) * pitch + first + columns
// Matrix products: out[z, m, first + n] = alpha · Σ a[z, m, k] · b[z, k, n] + added(m, n), a and b as matmul_a.wgsl
// and matmul_b.wgsl read them or others in their place, out with `pitch` columns to a row. A deep product is cut
// into `parts`, each a sum over `span` columns k: then `store` leaves sums, and matmul_merge.wgsl finishes.
alias D = f32;
alias R = f32;

struct Params {
  batch: u32,
  rows: u32,
  columns: u32,
  depth: u32,
  parts: u32,
  span: u32,
  b_row: u32, // elements from b[k, n] to b[k + 1, n],
  b_column: u32, // and to b[k, n + 1]
  alpha: f32,
  beta: f32,
  bias_row: u32,
  bias_column: u32,
  first: u32,
  pitch: u32,
}

@group(0) @binding(2) var<storage, read> bias: array<D>;
@group(0) @binding(3) var<storage, read_write> out: array<R>;
@group(0) @binding(4) var<uniform> params: Params;

fn added(m: u32, n: u32) -> f32 {
  return params.beta * f32(bias[m * params.bias_row + (params.first + n) * params.bias_column]);
}

// How a part's sum is finished.
fn result(m: u32, n: u32, sum: f32) -> f32 { return params.alpha * sum + added(m, n); }

// A slice of the grid is part · batch + z: of a product in one part, just z.
fn part_of(slice: u32) -> u32 { return 0u; }
fn batch_of(slice: u32) -> u32 { return slice; }

fn store(slice: u32, m: u32, n: u32, sum: f32) {
  out[(slice * params.rows + m) * params.pitch + params.first + n] = R(result(m, n, sum));
}
