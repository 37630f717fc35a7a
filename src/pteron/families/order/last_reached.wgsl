//! extent x: count
//! extent reached: count
//! extent out: count
// out[i] = the position of i along a dim where x[i] is the running extremum `reached[i]`, 0 elsewhere: the largest of
// these so far is the extremum's index. One invocation writes one element.
import package::wgsl::lib::index::{flat_index};
import package::wgsl::lib::nan::{is_nan};

alias X = f32;
alias V = f32;
alias R = i32;
alias T = f32; // what is compared
const WORKGROUP = 64u;

struct Params {
  count: u32,
  length: u32,
  stride: u32,
}

@group(0) @binding(0) var<storage, read> x: array<X>;
@group(0) @binding(1) var<storage, read> reached: array<V>;
@group(0) @binding(2) var<storage, read_write> out: array<R>;
@group(0) @binding(3) var<uniform> params: Params;

@compute @workgroup_size(WORKGROUP)
fn main(@builtin(global_invocation_id) id: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>) {
  let i = flat_index(id, groups);
  if (i >= params.count) { return; }
  let value = T(x[i]);
  let is_reached = value == T(reached[i]) || is_nan(f32(value));
  out[i] = select(R(0), R(i / params.stride % params.length), is_reached);
}
