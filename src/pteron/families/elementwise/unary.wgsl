// out[i] = apply(x[i]), the formula of an operator. One invocation computes one element, in T whatever the stored types
// are. Formulas may use what this file imports.
import package::wgsl::lib::index::{flat_index};
import package::wgsl::lib::nan::{is_finite, is_nan, nan};
import package::wgsl::lib::math::{at_least, at_most, erf, fmod, modulo, tanh_safe};
import package::wgsl::lib::exponential::{exp2_of, exp_of};
import package::wgsl::lib::logarithm::{log10_of, log1p_of, log2_of, log_of};
import package::wgsl::lib::power::{integer_power, power};
import package::wgsl::lib::tanh::{tanh_of};
import super::lib::special::{acos_of, acosh_of, asin_of, asinh_of, atan_of, atanh_of, cosh_of, expm1_of, sinh_of};
import super::lib::special::{erf_of, erfc_of, erfinv_of};
import super::lib::trigonometric::{cos_of, sin_of, tan_of};

alias X = f32;
alias T = f32;
alias R = f32;
const WORKGROUP = 64u;

struct Params {
  count: u32,
  integer: i32, // the operator's scalar where T is an integer,
  first: f32, // and where it is not; some take two
  second: f32,
}

@group(0) @binding(0) var<storage, read> x: array<X>;
@group(0) @binding(1) var<storage, read_write> out: array<R>;
@group(0) @binding(2) var<uniform> params: Params;

fn apply(x: T) -> R;

@compute @workgroup_size(WORKGROUP)
fn main(@builtin(global_invocation_id) id: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>) {
  let i = flat_index(id, groups);
  if (i >= params.count) { return; }
  out[i] = apply(T(x[i]));
}
