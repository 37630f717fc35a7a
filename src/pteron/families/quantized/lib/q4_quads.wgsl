//! use silu
//! extent bias: columns
//! extent residual: rows * columns
//! extent x_scales: rows
//! extent out: PARTS * rows * (columns - OTHERS)
//! extent out_b: rows * WIDTH_B
//! extent out_c: rows * (OTHERS - WIDTH_B)
// Finishes sums over k four adjacent columns at a time; replaces lib/q4_result.wgsl if the width of every output is a
// multiple of four.
alias X = f32;
alias D = f32;
alias R = f32;
const PARTS = 1u;
const OTHERS = 0u;
const WIDTH_B = 0u;

@group(0) @binding(3) var<storage, read> bias: array<vec4<D>>;
@group(0) @binding(4) var<storage, read> x_scales: array<X>;
@group(0) @binding(6) var<storage, read_write> out: array<vec4<R>>;
@group(0) @binding(7) var<uniform> params: Params;
@group(0) @binding(20) var<storage, read> residual: array<vec4<R>>;
@group(0) @binding(21) var<storage, read_write> out_b: array<vec4<R>>;
@group(0) @binding(22) var<storage, read_write> out_c: array<vec4<R>>;

fn finish(m: u32, n: u32, sum: vec4<f32>) -> vec4<f32> { return sum; }
fn added(m: u32, n: u32) -> vec4<f32> { return vec4<f32>(bias[n / 4u]); }
fn result(m: u32, n: u32, sum: vec4<f32>) -> vec4<f32> { return finish(m, n, sum) + added(m, n); }
fn store_other(m: u32, n: u32, value: vec4<f32>) { }

fn put_quad(part: u32, m: u32, n: u32, value: vec4<f32>) {
  let width = params.columns - OTHERS;
  if (OTHERS == 0u || n < width) {
    out[((part * params.rows + m) * width + n) / 4u] = vec4<R>(value);
  } else {
    store_other(m, n - width, value);
  }
}

fn store_quad(part: u32, m: u32, n: u32, totals: vec4<f32>) { put_quad(part, m, n, result(m, n, totals)); }

// silu(gate) · value, where the columns of values follow those of their gates.
fn gated(m: u32, n: u32, gate: vec4<f32>, value: vec4<f32>) -> vec4<f32> {
  return silu_quad(result(m, n, gate)) * result(m, n + OTHERS, value);
}

fn store_gated(m: u32, n: u32, gate: vec4<f32>, value: vec4<f32>) {
  put_quad(0u, m, n, gated(m, n, gate, value));
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
