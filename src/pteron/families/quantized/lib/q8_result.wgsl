//! use rounded
//! extent scales: scale_count
//! extent bias: channels * group_count
//! extent out: places * channels * group_count
// How an exact sum is finished: Σ (x - zero) · w: its value is sum · x_scale · scale of the channel + bias, which
// `finish` quantises to int8, or leaves. Outputs are [image][channel][place of a plane].
alias S = f32;
alias D = f32;
alias R = i32;

struct Params {
  places: u32, // of the output, all images counted
  plane: u32, // places per image
  channels: u32, // of the output, per group
  group_count: u32,
  scale_count: u32, // channels with a scale of their own: the others begin again
  out_width: u32,
  height: u32, // of the input
  width: u32,
  stride_height: u32,
  stride_width: u32,
  padding_height: u32,
  padding_width: u32,
  dilation_height: u32,
  dilation_width: u32,
  x_zero: i32,
  x_scale: f32,
  out_inverse: f32, // 1 / scale of the output
  out_zero: f32,
}

@group(0) @binding(2) var<storage, read> scales: array<S>;
@group(0) @binding(3) var<storage, read> bias: array<D>;
@group(0) @binding(4) var<storage, read_write> out: array<R>;
@group(0) @binding(5) var<uniform> params: Params;

fn added(channel: u32) -> f32 { return f32(bias[channel]); }
fn activation(value: f32) -> f32 { return value; }
fn finish(value: f32) -> R {
  return R(clamp(round(activation(value) * params.out_inverse) + params.out_zero, -128.0, 127.0));
}

fn store(channel: u32, place: u32, sum: i32) {
  let scale = params.x_scale * f32(scales[channel % params.scale_count]);
  let all = params.channels * params.group_count;
  let at = (place / params.plane * all + channel) * params.plane + place % params.plane;
  out[at] = finish(rounded(f32(sum) * scale) + added(channel));
}

// Where in the input a window at `place` of the output has its element `i`, along one dim; outside of
// [0, size) where there is none.
fn source(place: u32, i: u32, stride: u32, padding: u32, dilation: u32) -> i32 {
  return i32(place * stride + i * dilation) - i32(padding);
}
