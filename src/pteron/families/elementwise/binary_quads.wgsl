//! loops: LOADS * RANK
// out[i] = combine(a[i], b[i]), the formula of an operator, where one of them, x, has the shape of out, and the other, y,
// is broadcast: for software adapters, which store four elements at once in a third of the time. One invocation computes
// four elements, in T whatever the stored types are. Formulas may use what this file imports.
import package::wgsl::lib::index::{flat_index};
import package::wgsl::lib::nan::{is_nan};
import package::wgsl::lib::math::{floor_quotient, fmod, modulo};
import package::wgsl::lib::power::{integer_power, power};
import super::lib::special::{atan2_of, hypot_of};

alias X = f32;
alias Y = f32;
alias T = f32;
alias R = f32;
const WORKGROUP = 64u;
override RANK: u32 = 8u;
override LOADS: u32 = 4u; // 1 if y is the same for all four elements
override IS_B: bool = false; // whether x is b

struct Params {
  count: u32, // a multiple of 4
  alpha: f32,
  shape: array<vec4<u32>, 2>,
  y_strides: array<vec4<u32>, 2>,
}

@group(0) @binding(0) var<storage, read> x: array<vec4<X>>;
@group(0) @binding(1) var<storage, read> y: array<Y>;
@group(0) @binding(2) var<storage, read_write> out: array<vec4<R>>;
@group(0) @binding(3) var<uniform> params: Params;

fn combine(a: T, b: T) -> R;
@if(IS_B) fn ordered(x: T, y: T) -> R { return combine(y, x); }
@else fn ordered(x: T, y: T) -> R { return combine(x, y); }

@compute @workgroup_size(WORKGROUP)
fn main(@builtin(global_invocation_id) id: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>) {
  let i = flat_index(id, groups);
  if (4u * i >= params.count) { return; }
  let wide = x[i];
  var loaded = array<T, LOADS>();
  //! unroll
  for (var e = 0u; e < LOADS; e++) { loaded[e] = T(y[y_index(4u * i + e)]); }
  var results: vec4<R>;
  //! unroll
  for (var e = 0u; e < 4u; e++) { results[e] = ordered(T(wide[e]), loaded[min(e, LOADS - 1u)]); }
  out[i] = results;
}

fn y_index(at: u32) -> u32 {
  var rest = at;
  var found = 0u;
  //! unroll
  for (var d = 1u; d < RANK; d++) {
    let axis = RANK - d;
    let size = params.shape[axis / 4u][axis % 4u];
    let quotient = rest / size;
    found += (rest - quotient * size) * params.y_strides[axis / 4u][axis % 4u];
    rest = quotient;
  }
  return found + rest * params.y_strides[0].x;
}
