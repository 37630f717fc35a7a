//! use silu
//! extent bias: columns
//! extent residual: rows * columns
//! extent x_scales: rows
//! extent out: PARTS * rows * (columns - OTHERS)
//! extent out_b: rows * WIDTH_B
//! extent out_c: rows * (OTHERS - WIDTH_B)
// Finishes sums over k: out[m, n] = finish(m, n, sum) + added(m, n). If k is deep, it is split into PARTS: then
// `result` returns sums unchanged, out is [part][m][n], and q4_merge.wgsl finishes. The last OTHERS columns may go to
// further outputs, by `store_other`.
alias X = f32;
alias D = f32;
alias R = f32;
const PARTS = 1u;
const OTHERS = 0u;
const WIDTH_B = 0u;

@group(0) @binding(3) var<storage, read> bias: array<D>;
@group(0) @binding(4) var<storage, read> x_scales: array<X>;
@group(0) @binding(6) var<storage, read_write> out: array<R>;
@group(0) @binding(7) var<uniform> params: Params;
@group(0) @binding(20) var<storage, read> residual: array<R>;
@group(0) @binding(21) var<storage, read_write> out_b: array<R>;
@group(0) @binding(22) var<storage, read_write> out_c: array<R>;

// The two columns of a pair: a gate, in the first half of all columns, and its value, in the second half.
fn row_of_pair(pair: u32, second: u32) -> u32 { return pair + second * (params.columns / 2u); }
fn angle(m: u32, n: u32) -> vec2<f32> { return vec2(1.0, 0.0); }

fn finish(m: u32, n: u32, sum: f32) -> f32 { return sum; }
fn added(m: u32, n: u32) -> f32 { return f32(bias[n]); }
fn result(m: u32, n: u32, sum: f32) -> f32 { return finish(m, n, sum) + added(m, n); }
fn store_other(m: u32, n: u32, value: f32) { }

fn put(part: u32, m: u32, n: u32, value: f32) {
  let width = params.columns - OTHERS;
  if (OTHERS == 0u || n < width) {
    out[(part * params.rows + m) * width + n] = R(value);
  } else {
    store_other(m, n - width, value);
  }
}

fn finish_workgroup(block: u32, local: u32) { } // called at the end of a workgroup

fn store(part: u32, m: u32, n: u32, sum: f32) { put(part, m, n, result(m, n, sum)); }

// Four neighbouring columns, up to the last one.
fn store_quad(part: u32, m: u32, n: u32, totals: vec4<f32>) {
  //! unroll
  for (var e = 0u; e < 4u; e++) {
    if (n + e < params.columns) { store(part, m, n + e, totals[e]); }
  }
}

// silu(gate) · value, where the columns of values follow those of their gates.
fn put_gated(m: u32, n: u32, gate: f32, value: f32) {
  if (n >= OTHERS) { return; }
  put(0u, m, n, silu(result(m, n, gate)) * result(m, n + OTHERS, value));
}

fn store_gated(m: u32, n: u32, gate: vec4<f32>, value: vec4<f32>) {
  //! unroll
  for (var e = 0u; e < 4u; e++) { put_gated(m, n + e, gate[e], value[e]); }
}

fn store_gated_pair(m: u32, n: u32, gate: vec2<f32>, value: vec2<f32>) {
  put_gated(m, n, gate.x, value.x);
  put_gated(m, n + 1u, gate.y, value.y);
}
