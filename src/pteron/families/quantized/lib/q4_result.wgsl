//! extent bias: columns
//! extent x_scales: rows
//! extent out: PARTS * rows * columns
// What becomes of sums over k: out[m, n] = finish(m, n, sum) + added(n). A deep product is cut into PARTS: then
// `result` leaves their sums as they are, [part][m][n], and q4_merge.wgsl finishes.
alias X = f32;
alias D = f32;
alias R = f32;
const PARTS = 1u;

struct Params {
  rows: u32,
  columns: u32,
}

@group(0) @binding(3) var<storage, read> bias: array<D>;
@group(0) @binding(4) var<storage, read> x_scales: array<X>;
@group(0) @binding(6) var<storage, read_write> out: array<R>;
@group(0) @binding(7) var<uniform> params: Params;

fn finish(m: u32, n: u32, sum: f32) -> f32 { return sum; }
fn added(n: u32) -> f32 { return f32(bias[n]); }
fn result(m: u32, n: u32, sum: f32) -> f32 { return finish(m, n, sum) + added(n); }

fn store(part: u32, m: u32, n: u32, sum: f32) {
  out[(part * params.rows + m) * params.columns + n] = R(result(m, n, sum));
}
