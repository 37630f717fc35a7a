//! loops: rank
// out[i] = before[i] + stride · index, where `index` is one of several indices that pick an element together, for
// every i of the shape that they broadcast to. One invocation computes one offset. If any index is out of range,
// the offset is -1. Without `before`, offsets start at 0.
import package::wgsl::lib::index::{flat_index};

alias I = i32;
const WORKGROUP = 64u;

struct Params {
  count: u32,
  rank: u32,
  size: u32, // of the dim that the index picks from
  stride: u32, // of that dim
  shape: array<vec4<u32>, 2>,
  strides: array<vec4<u32>, 2>, // of the index
}

@group(0) @binding(0) var<storage, read> indices: array<I>;
@group(0) @binding(1) var<storage, read> before: array<i32>;
@group(0) @binding(2) var<storage, read_write> out: array<i32>;
@group(0) @binding(3) var<uniform> params: Params;

fn start(i: u32) -> i32 {
  @if(before) return before[i];
  @else return 0;
}

@compute @workgroup_size(WORKGROUP)
fn main(@builtin(global_invocation_id) id: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>) {
  let i = flat_index(id, groups);
  if (i >= params.count) { return; }
  var rest = i;
  var at = 0u;
  for (var d = params.rank; d > 0u; d--) {
    let axis = d - 1u;
    let size = params.shape[axis / 4u][axis % 4u];
    at += rest % size * params.strides[axis / 4u][axis % 4u];
    rest /= size;
  }
  var index = i32(indices[at]);
  if (index < 0) { index += i32(params.size); }
  let offset = start(i);
  let is_inside = offset >= 0 && index >= 0 && index < i32(params.size);
  out[i] = select(-1, offset + index * i32(params.stride), is_inside);
}
