//! extent x: rows * depth
//! extent out: rows * padded
// Rows of x, filled up with zeros to whole vec4s: out[m, k] = x[m, k] for k < depth. One invocation writes one
// element.
import package::wgsl::lib::index::{flat_index};

alias X = f32;
alias R = f32;
const WORKGROUP = 64u;

struct Params {
  rows: u32,
  depth: u32,
  padded: u32, // depth of out
}

@group(0) @binding(0) var<storage, read> x: array<X>;
@group(0) @binding(1) var<storage, read_write> out: array<R>;
@group(0) @binding(2) var<uniform> params: Params;

@compute @workgroup_size(WORKGROUP)
fn main(@builtin(global_invocation_id) id: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>) {
  let i = flat_index(id, groups);
  if (i >= params.rows * params.padded) { return; }
  let m = i / params.padded;
  let k = i % params.padded;
  let value = x[m * params.depth + min(k, params.depth - 1u)];
  out[i] = R(select(X(0.0), value, k < params.depth));
}
