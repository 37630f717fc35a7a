//! extent x: 8 * rows * WORDS
//! extent x_scales: rows
//! extent x_zeros: rows
//! extent out: 2 * rows * WORDS
//! extent factors: 2 * rows
// Rows of x as int8: clamp(round(x[m, k] / scale[m]) + zero[m], -128, 127). One invocation makes a pair of words
// of eight neighbours: the even ones, then the odd ones; a row's first one leaves its factors too.
import package::wgsl::lib::index::{flat_index};
import super::lib::int8_steps::{int8_steps};

alias X = f32;
alias S = f32;
alias Z = i32;
const WORKGROUP = 64u;
override WORDS: u32 = 8u; // pairs per row

struct Params {
  rows: u32,
}

@group(0) @binding(0) var<storage, read> x: array<vec4<X>>;
@group(0) @binding(1) var<storage, read> x_scales: array<S>;
@group(0) @binding(2) var<storage, read> x_zeros: array<Z>;
@group(0) @binding(3) var<storage, read_write> out: array<vec2<u32>>;
@group(0) @binding(4) var<storage, read_write> factors: array<f32>; // scales of all rows, then their zero points
@group(0) @binding(5) var<uniform> params: Params;

fn quantized(m: u32, value: vec4<f32>) -> vec4<i32> {
  return vec4<i32>(int8_steps(value, f32(x_scales[m]), f32(x_zeros[m])));
}

@compute @workgroup_size(WORKGROUP)
fn main(@builtin(global_invocation_id) id: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>) {
  let i = flat_index(id, groups);
  if (i >= params.rows * WORDS) { return; }
  let m = i / WORDS;
  if (i % WORDS == 0u) {
    factors[m] = f32(x_scales[m]);
    factors[params.rows + m] = f32(x_zeros[m]);
  }
  let low = quantized(m, vec4<f32>(x[2u * i]));
  let high = quantized(m, vec4<f32>(x[2u * i + 1u]));
  out[i] = vec2(pack4xI8(vec4(low.xz, high.xz)), pack4xI8(vec4(low.yw, high.yw)));
}
