//! loops: length
// order[row, r] = k where r elements of the row come before element k. A row's elements are `stride` apart. One
// invocation ranks one element, by comparing it with all others.
import package::wgsl::lib::index::{flat_index};
import super::lib::precedes::{precedes};

alias X = f32;
alias T = f32; // what is compared
const WORKGROUP = 64u;

struct Params {
  count: u32,
  length: u32,
  stride: u32,
}

@group(0) @binding(0) var<storage, read> x: array<X>;
@group(0) @binding(1) var<storage, read_write> order: array<i32>;
@group(0) @binding(2) var<uniform> params: Params;

@compute @workgroup_size(WORKGROUP)
fn main(@builtin(global_invocation_id) id: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>) {
  let i = flat_index(id, groups);
  if (i >= params.count) { return; }
  let row = i / params.length;
  let k = i % params.length;
  let base = row / params.stride * params.stride * params.length + row % params.stride;
  let own = T(x[base + k * params.stride]);
  var rank = 0u;
  for (var l = 0u; l < params.length; l++) {
    rank += select(0u, 1u, precedes(T(x[base + l * params.stride]), l, own, k));
  }
  order[row * params.length + rank] = i32(k);
}
