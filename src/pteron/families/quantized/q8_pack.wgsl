//! loops: 4
//! extent x: images * group_count * channels * height * width
//! extent out: images * out_height * out_width * group_count * ceil(channels, 4)
// Packs int8 activations: x [image][group][channel][y][x], one element per word, becomes
// out [image][y][x][group][channel / 4], or [image][group][channel / 4][y][x] if IS_PLANAR, four channels per word,
// the first in the lowest byte, with a border of zero points around the planes. One invocation packs one word; past
// the last channel it packs zeros.
import package::wgsl::lib::index::{flat_index};

alias X = i32;
const WORKGROUP = 64u;
override IS_PLANAR: bool = false;
override QUANTIZES: bool = false; // x has floats

struct Params {
  images: u32,
  group_count: u32,
  channels: u32, // of a group
  height: u32,
  width: u32,
  padding_height: u32, // above x
  padding_width: u32, // on its left
  out_height: u32, // with the border
  out_width: u32,
  inverse: f32, // 1 / scale, if QUANTIZES
  zero: f32,
}

@group(0) @binding(0) var<storage, read> x: array<X>;
@group(0) @binding(1) var<storage, read_write> out: array<u32>;
@group(0) @binding(2) var<uniform> params: Params;

fn quantized(value: X) -> i32 {
  @if(QUANTIZES) return i32(clamp(round(f32(value) * params.inverse) + params.zero, -128.0, 127.0));
  @else return i32(value);
}

@compute @workgroup_size(WORKGROUP)
fn main(@builtin(global_invocation_id) id: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>) {
  let i = flat_index(id, groups);
  let words = (params.channels + 3u) / 4u;
  let plane = params.out_height * params.out_width;
  let pixel = i % plane;
  let word = i / plane % words;
  let row = i / plane / words; // image · groups + group
  if (row >= params.images * params.group_count) { return; }
  let y = i32(pixel / params.out_width) - i32(params.padding_height);
  let column = i32(pixel % params.out_width) - i32(params.padding_width);
  let is_inside = y >= 0 && column >= 0 && y < i32(params.height) && column < i32(params.width);
  let source = u32(y) * params.width + u32(column);
  var packed = 0u;
  for (var e = 0u; e < 4u; e++) {
    let channel = 4u * word + e;
    if (channel < params.channels) {
      var value = i32(params.zero);
      if (is_inside) {
        value = quantized(x[(row * params.channels + channel) * params.height * params.width + source]);
      }
      packed |= (u32(value) & 255u) << (8u * e);
    }
  }
  let image = row / params.group_count;
  let group = row % params.group_count;
  let word_index = ((image * plane + pixel) * params.group_count + group) * words + word;
  out[select(word_index, i, IS_PLANAR)] = packed;
}
