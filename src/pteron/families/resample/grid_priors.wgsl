//! extent out: count
// out[row · width + column] = (column + offset, row + offset) · stride: the coordinates of a plane's elements on a
// plane that is `stride` times as large. One invocation writes one number.
import package::wgsl::lib::index::{flat_index};

alias R = f32;
const WORKGROUP = 64u;

struct Params {
  count: u32,
  width: u32,
  stride: f32,
  offset: f32,
}

@group(0) @binding(0) var<storage, read_write> out: array<R>;
@group(0) @binding(1) var<uniform> params: Params;

@compute @workgroup_size(WORKGROUP)
fn main(@builtin(global_invocation_id) id: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>) {
  let i = flat_index(id, groups);
  if (i >= params.count) { return; }
  let element = i / 2u;
  let along = select(element % params.width, element / params.width, i % 2u == 1u);
  out[i] = R((f32(along) + params.offset) * params.stride);
}
