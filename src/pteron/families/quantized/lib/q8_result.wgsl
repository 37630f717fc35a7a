//! extent scales: scale_count
//! extent bias: channels * group_count
//! extent out: pixels * channels * group_count
// The epilogue of int8 products: from the exact sum Σ (x - zero) · w, sum · x_scale · scale of the channel + bias, which
// is quantised to int8 or kept as a float. Outputs are [image][channel][pixel].
import super::rounded::{rounded};

override TO_FLOATS: bool = false;
override HAS_RELU: bool = false;
override IS_TRANSPOSED: bool = false; // the convolution
alias S = f32;
alias D = f32;
alias R = i32;

struct Params {
  pixels: u32, // of the output, over all images
  plane: u32, // pixels per image
  channels: u32, // of the output, per group
  group_count: u32,
  scale_count: u32, // channels that have scales; later channels repeat them
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

fn added(channel: u32) -> f32 {
  @if(bias) return f32(bias[channel]);
  @else return 0.0;
}

fn activation(value: f32) -> f32 {
  @if(HAS_RELU) return max(value, 0.0);
  @else return value;
}

fn finish(value: f32) -> R {
  @if(TO_FLOATS) return R(value);
  @else return R(clamp(round(activation(value) * params.out_inverse) + params.out_zero, -128.0, 127.0));
}

fn store(channel: u32, pixel: u32, sum: i32) {
  let scale = params.x_scale * f32(scales[channel % params.scale_count]);
  let all = params.channels * params.group_count;
  let at = (pixel / params.plane * all + channel) * params.plane + pixel % params.plane;
  out[at] = finish(rounded(f32(sum) * scale) + added(channel));
}

// Along one dim: the input index of element `i` of the window at `pixel` of the output; outside [0, size) if the
// window has none there.
fn source(pixel: u32, i: u32, stride: u32, padding: u32, dilation: u32) -> i32 {
  @if(IS_TRANSPOSED) {
    let at = i32(pixel + padding) - i32(i * dilation);
    return select(-1, at / i32(stride), at >= 0 && at % i32(stride) == 0);
  }
  @else return i32(pixel * stride + i * dilation) - i32(padding);
}
