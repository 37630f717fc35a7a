//! extent a: count
//! extent b: count
//! extent out: count
// out[i] = combine(a[i], b[i]), the formula of an operator, where all three have one shape. One invocation computes one
// element, in T whatever the stored types are. Formulas may use what this file imports.
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

struct Params {
  count: u32,
  alpha: f32,
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
  out[i] = combine(T(a[i]), T(b[i]));
}
