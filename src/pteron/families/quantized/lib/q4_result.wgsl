//! extent bias: columns
//! extent residual: rows * columns
//! extent x_scales: rows
//! extent out: rows * (columns - OTHERS)
//! extent out_b: rows * WIDTH_B
//! extent out_c: rows * (OTHERS - WIDTH_B)
//! extent partial: PARTS * rows * columns
// Finishes sums over k: out[m, n] = sum · x_scales[m] + bias[n] + residual[m, n]. The last OTHERS columns go to further
// outputs; or columns are queries, keys and values (lib/q4_rope.wgsl). If k is deep, a launch computes the sums of PARTS
// parts of it, partial[part][m][n], and q4_merge.wgsl finishes.
import super::q4_params::{params};
import super::silu::{silu};
@if(q_out) import super::q4_rope::{put};
@if(peaks) import super::q4_peaks::{note_peak};

alias X = f32;
alias D = f32;
alias R = f32;
override PARTS: u32 = 1u;
override OTHERS: u32 = 0u;
override WIDTH_B: u32 = 0u;

@group(0) @binding(3) var<storage, read> bias: array<D>;
@group(0) @binding(4) var<storage, read> x_scales: array<X>;
@group(0) @binding(6) var<storage, read_write> out: array<R>;
@group(0) @binding(20) var<storage, read> residual: array<R>;
@group(0) @binding(21) var<storage, read_write> out_b: array<R>;
@group(0) @binding(22) var<storage, read_write> out_c: array<R>;
@group(0) @binding(6) var<storage, read_write> partial: array<f32>;

fn added(m: u32, n: u32) -> f32 {
  @if(bias && residual) return f32(bias[n]) + f32(residual[m * params.columns + n]);
  @elif(bias) return f32(bias[n]);
  @elif(residual) return f32(residual[m * params.columns + n]);
  @else return 0.0;
}

fn result(m: u32, n: u32, sum: f32) -> f32 {
  @if(x_scales) return sum * f32(x_scales[m]) + added(m, n);
  @else return sum + added(m, n);
}

@if(!q_out)
fn put(m: u32, n: u32, value: f32) {
  let width = params.columns - OTHERS;
  @if(out_b) if (n >= width) {
    put_other(m, n - width, value);
    return;
  }
  out[m * width + n] = R(value);
  @if(peaks) note_peak(n, value);
}

@if(out_b)
fn put_other(m: u32, n: u32, value: f32) {
  @if(out_c) if (n >= WIDTH_B) {
    out_c[m * (OTHERS - WIDTH_B) + n - WIDTH_B] = R(value);
    return;
  }
  out_b[m * WIDTH_B + n] = R(value);
}

fn store(part: u32, m: u32, n: u32, sum: f32) {
  @if(partial) partial[(part * params.rows + m) * params.columns + n] = sum;
  @else put(m, n, result(m, n, sum));
}

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
  put(m, n, silu(result(m, n, gate)) * result(m, n + OTHERS, value));
}

fn store_gated(m: u32, n: u32, gate: vec4<f32>, value: vec4<f32>) {
  //! unroll
  for (var e = 0u; e < 4u; e++) { put_gated(m, n + e, gate[e], value[e]); }
}

fn store_gated_pair(m: u32, n: u32, gate: vec2<f32>, value: vec2<f32>) {
  put_gated(m, n, gate.x, value.x);
  put_gated(m, n + 1u, gate.y, value.y);
}
