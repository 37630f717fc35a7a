//! use index
//! use math
// out[i] = apply(x[i]). One invocation computes one element, in T whatever the stored types are.
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

fn apply(x: T) -> R { return R(x); }

@compute @workgroup_size(WORKGROUP)
fn main(@builtin(global_invocation_id) id: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>) {
  let i = flat_index(id, groups);
  if (i >= params.count) { return; }
  out[i] = apply(T(x[i]));
}
