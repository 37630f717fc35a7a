//! extent weight: group_count * filters * channels * taps
//! extent packed: group_count * taps * quads * 16 * filter_quads
// The weights of a convolution as its kernels read them: packed[group][k][filter], k = tap · 4 · quads + channel,
// channels and filters padded to quads with zeros. One invocation writes one of them.
import package::wgsl::lib::index::{flat_index};

alias W = f32;
const WORKGROUP = 64u;

struct Params {
  group_count: u32,
  filters: u32,
  filter_quads: u32,
  channels: u32,
  quads: u32,
  taps: u32,
  filter_stride: u32,
  channel_stride: u32,
  group_stride: u32,
}

@group(0) @binding(0) var<storage, read> weight: array<W>;
@group(0) @binding(1) var<storage, read_write> packed: array<f32>;
@group(0) @binding(2) var<uniform> params: Params;

@compute @workgroup_size(WORKGROUP)
fn main(@builtin(global_invocation_id) id: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>) {
  let i = flat_index(id, groups);
  let row = 4u * params.filter_quads;
  let column = i % row;
  let channel = i / row % (4u * params.quads);
  let tap = i / row / (4u * params.quads) % params.taps;
  let group_index = i / row / (4u * params.quads) / params.taps;
  if (group_index >= params.group_count) { return; }
  let inside = column < params.filters && channel < params.channels;
  let at = group_index * params.group_stride + column * params.filter_stride + channel * params.channel_stride + tap;
  packed[i] = select(0.0, f32(weight[select(0u, at, inside)]), inside);
}
