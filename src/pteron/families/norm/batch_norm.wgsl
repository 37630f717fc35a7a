//! extent x: count
//! extent weight: channels
//! extent bias: channels
//! extent mean: channels
//! extent variance: channels
//! extent out: count
// out[n, c, k] = (x[n, c, k] - mean[c]) / sqrt(variance[c] + eps) · weight[c] + bias[c]. One invocation computes
// one element of `count`.
import package::wgsl::lib::index::{flat_index};

alias X = f32;
alias W = f32;
alias V = f32;
alias M = f32;
alias S = f32;
alias R = f32;
const WORKGROUP = 64u;

struct Params {
  count: u32,
  channels: u32,
  plane: u32, // elements that share a channel
  eps: f32,
}

@group(0) @binding(0) var<storage, read> x: array<X>;
@group(0) @binding(1) var<storage, read> weight: array<W>;
@group(0) @binding(2) var<storage, read> bias: array<V>;
@group(0) @binding(3) var<storage, read> mean: array<M>;
@group(0) @binding(4) var<storage, read> variance: array<S>;
@group(0) @binding(5) var<storage, read_write> out: array<R>;
@group(0) @binding(6) var<uniform> params: Params;

@compute @workgroup_size(WORKGROUP)
fn main(@builtin(global_invocation_id) id: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>) {
  let i = flat_index(id, groups);
  if (i >= params.count) { return; }
  let c = i / params.plane % params.channels;
  let scale = inverseSqrt(f32(variance[c]) + params.eps);
  var result = (f32(x[i]) - f32(mean[c])) * scale;
  @if(weight) result *= f32(weight[c]);
  @if(bias) result += f32(bias[c]);
  out[i] = R(result);
}
