//! extent scales: count
//! extent out: count
// out[i] = 1 / scales[i], rounded to the nearest float: quantising multiplies by it, and a product exactly
// between two integers must not move. One invocation computes one.
import package::wgsl::lib::index::{flat_index};
import super::lib::quotient::{quotient};

alias S = f32;
const WORKGROUP = 64u;

struct Params {
  count: u32,
}

@group(0) @binding(0) var<storage, read> scales: array<S>;
@group(0) @binding(1) var<storage, read_write> out: array<f32>;
@group(0) @binding(2) var<uniform> params: Params;

@compute @workgroup_size(WORKGROUP)
fn main(@builtin(global_invocation_id) id: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>) {
  let i = flat_index(id, groups);
  if (i < params.count) { out[i] = quotient(1.0, f32(scales[i])); }
}
