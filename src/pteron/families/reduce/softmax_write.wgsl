// out[i] = exp(x[i] - m) / t, or the logarithm of it, with m the maximum of the row that element i is in and t
// the sum of its exponentials. reduce.wgsl has found both. A row's elements are `stride` apart. One invocation writes one
// element.
import package::wgsl::lib::index::{flat_index};
import package::wgsl::lib::logarithm::{log_of};

alias X = f32;
alias R = f32;
const WORKGROUP = 64u;

struct Params {
  count: u32,
  length: u32,
  stride: u32,
}

@group(0) @binding(0) var<storage, read> x: array<X>;
@group(0) @binding(1) var<storage, read> most: array<f32>;
@group(0) @binding(2) var<storage, read> total: array<f32>;
@group(0) @binding(3) var<storage, read_write> out: array<R>;
@group(0) @binding(4) var<uniform> params: Params;

// As softmax.wgsl has it.
fn result(shifted: f32, total: f32) -> f32;

@compute @workgroup_size(WORKGROUP)
fn main(@builtin(global_invocation_id) id: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>) {
  let i = flat_index(id, groups);
  if (i >= params.count) { return; }
  let row = i / params.stride / params.length * params.stride + i % params.stride;
  out[i] = R(result(f32(x[i]) - most[row], total[row]));
}
