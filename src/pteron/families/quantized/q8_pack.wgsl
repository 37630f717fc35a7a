//! use index
//! loops: 4
//! extent x: images * group_count * channels * plane
//! extent out: images * plane * group_count * ceil(channels, 4)
// Packs int8 activations: x [image][group][channel][place], an element to a word, becomes
// out [image][place][group][channel / 4], four to a word, the first in its lowest byte. One invocation packs one
// word; beyond the last channel it packs zeros.
alias X = i32;
const WORKGROUP = 64u;

struct Params {
  images: u32,
  group_count: u32,
  channels: u32, // of a group
  plane: u32, // places
  inverse: f32, // 1 / scale, where x is to be quantised
  zero: f32,
}

@group(0) @binding(0) var<storage, read> x: array<X>;
@group(0) @binding(1) var<storage, read_write> out: array<u32>;
@group(0) @binding(2) var<uniform> params: Params;

fn quantized(value: X) -> i32 { return i32(value); }

@compute @workgroup_size(WORKGROUP)
fn main(@builtin(global_invocation_id) id: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>) {
  let i = flat_index(id, groups);
  let words = (params.channels + 3u) / 4u;
  let place = i % params.plane;
  let word = i / params.plane % words;
  let row = i / params.plane / words; // image · groups + group
  if (row >= params.images * params.group_count) { return; }
  var packed = 0u;
  for (var e = 0u; e < 4u; e++) {
    let channel = 4u * word + e;
    if (channel < params.channels) {
      let value = quantized(x[(row * params.channels + channel) * params.plane + place]);
      packed |= (u32(value) & 255u) << (8u * e);
    }
  }
  let image = row / params.group_count;
  let group = row % params.group_count;
  out[((image * params.plane + place) * params.group_count + group) * words + word] = packed;
}
