// The end of a norm of rows that are too long for the invocations of layer_norm.wgsl or rms_norm.wgsl:
// out[i] = (x[i] - center) · rstd · weight[c] + bias[c], where c is the element's channel (lib/affine.wgsl), `center` its
// row's mean, `squares` the sum of the row's squared distances from it, and rstd = 1 / sqrt(squares / length + eps). An RMS
// norm has no center. One invocation writes one element, and the row's mean and rstd if it is the row's first.
import package::wgsl::lib::index::{flat_index};
import super::lib::affine::{affine, channel};

alias X = f32;
alias R = f32;
alias S = f32;
const WORKGROUP = 64u;

struct Params {
  count: u32,
  length: u32,
  eps: f32,
  @if(BY_GROUPS) cycle: u32, // rows that contain all channels once
  @if(BY_GROUPS) plane: u32, // elements that share a channel
}

@group(0) @binding(0) var<storage, read> x: array<X>;
@group(0) @binding(3) var<storage, read> center: array<f32>;
@group(0) @binding(4) var<storage, read> squares: array<f32>;
@group(0) @binding(5) var<storage, read_write> out: array<R>;
@group(0) @binding(6) var<storage, read_write> mean: array<S>;
@group(0) @binding(7) var<storage, read_write> rstd: array<S>;
@group(0) @binding(8) var<uniform> params: Params;

@compute @workgroup_size(WORKGROUP)
fn main(@builtin(global_invocation_id) id: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>) {
  let i = flat_index(id, groups);
  if (i >= params.count) { return; }
  let row = i / params.length;
  let k = i % params.length;
  let scale = inverseSqrt(squares[row] / f32(params.length) + params.eps);
  var distance = f32(x[i]);
  @if(center) distance -= center[row];
  out[i] = R(affine(distance * scale, channel(row, k)));
  @if(center) if (k == 0u) {
    mean[row] = S(center[row]);
    rstd[row] = S(scale);
  }
}
