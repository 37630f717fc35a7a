//! loops: RANK
// out[i] = combine(a[i], b[i]), the formula of an operator, with broadcasting. One invocation computes one element, in T
// whatever the stored types are. Sizes and strides describe the walk over the output, merged to as few dims as possible.
// Formulas may use what this file imports.
import package::wgsl::lib::index::{flat_index};
import package::wgsl::lib::nan::{is_nan};
import package::wgsl::lib::math::{floor_quotient, fmod, modulo};
import package::wgsl::lib::power::{integer_power, power};
import super::lib::special::{atan2_of, hypot_of};

alias A = f32;
alias B = f32;
alias T = f32;
alias R = f32;
const WORKGROUP = 64u;
override RANK: u32 = 8u;

struct Params {
  count: u32,
  alpha: f32,
  shape: array<vec4<u32>, 2>,
  a_strides: array<vec4<u32>, 2>,
  b_strides: array<vec4<u32>, 2>,
}

@group(0) @binding(0) var<storage, read> a: array<A>;
@group(0) @binding(1) var<storage, read> b: array<B>;
@group(0) @binding(2) var<storage, read_write> out: array<R>;
@group(0) @binding(3) var<uniform> params: Params;

fn combine(a: T, b: T) -> R;

@compute @workgroup_size(WORKGROUP)
fn main(@builtin(global_invocation_id) id: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>) {
  let i = flat_index(id, groups);
  if (i >= params.count) { return; }
  var rest = i;
  var a_index = 0u;
  var b_index = 0u;
  //! unroll
  for (var d = 1u; d < RANK; d++) {
    let axis = RANK - d;
    let size = params.shape[axis / 4u][axis % 4u];
    let quotient = rest / size;
    let position = rest - quotient * size;
    rest = quotient;
    a_index += position * params.a_strides[axis / 4u][axis % 4u];
    b_index += position * params.b_strides[axis / 4u][axis % 4u];
  }
  a_index += rest * params.a_strides[0].x;
  b_index += rest * params.b_strides[0].x;
  out[i] = combine(T(a[a_index]), T(b[b_index]));
}
