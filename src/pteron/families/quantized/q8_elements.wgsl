//! loops: rank
// out[i] = quantised(a + alpha · b) of elements of int8, or without b quantised(a), perhaps max(a, 0). Each tensor has its
// own scale, zero point and strides. One invocation computes one element. Sizes and strides iterate over the output, with
// as few dims as possible.
import package::wgsl::lib::index::{flat_index};
import super::lib::rounded::{rounded};

const WORKGROUP = 64u;
override HAS_RELU: bool = false; // without b

struct Params {
  count: u32,
  rank: u32,
  a_scale: f32,
  a_zero: f32,
  b_scale: f32,
  b_zero: f32,
  out_inverse: f32, // 1 / scale
  out_zero: f32,
  alpha: f32,
  shape: array<vec4<u32>, 2>,
  a_strides: array<vec4<u32>, 2>,
  b_strides: array<vec4<u32>, 2>,
}

@group(0) @binding(0) var<storage, read> a: array<i32>;
@group(0) @binding(1) var<storage, read> b: array<i32>;
@group(0) @binding(2) var<storage, read_write> out: array<i32>;
@group(0) @binding(3) var<uniform> params: Params;

fn a_value(i: u32) -> f32 { return rounded((f32(a[i]) - params.a_zero) * params.a_scale); }
fn b_value(i: u32) -> f32 { return rounded((f32(b[i]) - params.b_zero) * params.b_scale); }

fn combined(a_index: u32, b_index: u32) -> f32 {
  @if(b) return a_value(a_index) + rounded(params.alpha * b_value(b_index));
  @elif(HAS_RELU) return max(a_value(a_index), 0.0);
  @else return a_value(a_index);
}

@compute @workgroup_size(WORKGROUP)
fn main(@builtin(global_invocation_id) id: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>) {
  let i = flat_index(id, groups);
  if (i >= params.count) { return; }
  var rest = i;
  var a_index = 0u;
  var b_index = 0u;
  for (var d = params.rank; d > 0u; d--) {
    let axis = d - 1u;
    let size = params.shape[axis / 4u][axis % 4u];
    let position = rest % size;
    rest /= size;
    a_index += position * params.a_strides[axis / 4u][axis % 4u];
    b_index += position * params.b_strides[axis / 4u][axis % 4u];
  }
  let value = combined(a_index, b_index);
  out[i] = i32(clamp(round(value * params.out_inverse) + params.out_zero, -128.0, 127.0));
}
