// out[i] = x[i] · weight[k] / sqrt(squares / length + eps), where i is the k-th element of its row and `squares`
// the sum of the row's squares. One invocation writes one element.
import package::wgsl::lib::index::{flat_index};

alias X = f32;
alias W = f32;
alias R = f32;
const WORKGROUP = 64u;

struct Params {
  count: u32,
  length: u32,
  eps: f32,
}

@group(0) @binding(0) var<storage, read> x: array<X>;
@group(0) @binding(1) var<storage, read> weight: array<W>;
@group(0) @binding(2) var<storage, read> squares: array<f32>;
@group(0) @binding(3) var<storage, read_write> out: array<R>;
@group(0) @binding(4) var<uniform> params: Params;

@compute @workgroup_size(WORKGROUP)
fn main(@builtin(global_invocation_id) id: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>) {
  let i = flat_index(id, groups);
  if (i >= params.count) { return; }
  let scale = inverseSqrt(squares[i / params.length] / f32(params.length) + params.eps);
  out[i] = R(f32(x[i]) * scale * f32(weight[i % params.length]));
}
