//! extent bias: columns
//! extent residual: rows * columns
//! extent x_scales: rows
//! extent out: rows * (columns - OTHERS)
//! extent out_b: rows * WIDTH_B
//! extent out_c: rows * (OTHERS - WIDTH_B)
//! extent partial: PARTS * rows * columns
// Finishes sums over k as lib/q4_result.wgsl does, four adjacent columns at a time: for outputs whose widths are
// multiples of four.
import super::q4_params::{params};
import super::silu::{silu, silu_quad};
@if(q_out) import super::q4_quads_rope::{put_quad, finish_quad};

alias X = f32;
alias D = f32;
alias R = f32;
override PARTS: u32 = 1u;
override OTHERS: u32 = 0u;
override WIDTH_B: u32 = 0u;

@group(0) @binding(3) var<storage, read> bias: array<vec4<D>>;
@group(0) @binding(4) var<storage, read> x_scales: array<X>;
@group(0) @binding(6) var<storage, read_write> out: array<vec4<R>>;
@group(0) @binding(20) var<storage, read> residual: array<vec4<R>>;
@group(0) @binding(21) var<storage, read_write> out_b: array<vec4<R>>;
@group(0) @binding(22) var<storage, read_write> out_c: array<vec4<R>>;
@group(0) @binding(6) var<storage, read_write> partial: array<vec4<f32>>;

fn added(m: u32, n: u32) -> vec4<f32> {
  @if(bias && residual) return vec4<f32>(bias[n / 4u]) + vec4<f32>(residual[(m * params.columns + n) / 4u]);
  @elif(bias) return vec4<f32>(bias[n / 4u]);
  @elif(residual) return vec4<f32>(residual[(m * params.columns + n) / 4u]);
  @else return vec4(0.0);
}

fn result(m: u32, n: u32, sum: vec4<f32>) -> vec4<f32> {
  @if(x_scales) return sum * f32(x_scales[m]) + added(m, n);
  @else return sum + added(m, n);
}

@if(!q_out)
fn put_quad(m: u32, n: u32, value: vec4<f32>) {
  let width = params.columns - OTHERS;
  @if(out_b) if (n >= width) {
    put_other(m, n - width, value);
    return;
  }
  out[(m * width + n) / 4u] = vec4<R>(value);
}

@if(out_b)
fn put_other(m: u32, n: u32, value: vec4<f32>) {
  @if(out_c) if (n >= WIDTH_B) {
    out_c[(m * (OTHERS - WIDTH_B) + n - WIDTH_B) / 4u] = vec4<R>(value);
    return;
  }
  out_b[(m * WIDTH_B + n) / 4u] = vec4<R>(value);
}

fn store_quad(part: u32, m: u32, n: u32, totals: vec4<f32>) {
  @if(partial) partial[((part * params.rows + m) * params.columns + n) / 4u] = totals;
  @elif(q_out) finish_quad(m, n, result(m, n, totals));
  @else put_quad(m, n, result(m, n, totals));
}

// silu(gate) · value, where the columns of values follow those of their gates.
fn gated(m: u32, n: u32, gate: vec4<f32>, value: vec4<f32>) -> vec4<f32> {
  return silu_quad(result(m, n, gate)) * result(m, n + OTHERS, value);
}

fn store_gated(m: u32, n: u32, gate: vec4<f32>, value: vec4<f32>) {
  put_quad(m, n, gated(m, n, gate, value));
}

// The same of half a quad.
fn store_gated_pair(m: u32, n: u32, gate: vec2<f32>, value: vec2<f32>) {
  let element = n % 4u;
  let gates = result(m, n - element, gate.xyxy);
  let values = result(m, n - element + OTHERS, value.xyxy);
  let opened = select(gates.zw, gates.xy, element == 0u);
  let made = vec2(silu(opened.x), silu(opened.y)) * select(values.zw, values.xy, element == 0u);
  out[(m * OTHERS + n) / 4u][element] = R(made.x);
  out[(m * OTHERS + n) / 4u][element + 1u] = R(made.y);
}
