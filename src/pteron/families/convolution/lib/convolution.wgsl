//! extent source: batch * group_count * channels * height * width
//! extent bias: group_count * filters
//! extent addend: (batch - 1) * addend_strides[0] + (group_count * filters - 1) * addend_strides[1] + (out_height - 1) * addend_strides[2] + (out_width - 1) * addend_strides[3] + 1
// Convolutions: out[n, f, y, x] = activation(bounded(Σ weight[f, c, tap] · source[n, c, y', x'] + bias[f] + addend)),
// the sum over taps and the channels of f's group, where (y', x') is the source element under the tap at (y, x);
// outside the source it is zero.
//
// A pixel is a position (n, y, x) of the output. k numbers the terms of the sum, tap · 4 · quads + channel: the
// channels of a group are padded to quads. A deep sum is split into `parts` of `span` terms each, partial[part][out], and
// convolution_merge.wgsl finishes. The source is [n][c][y'][x'], the output [n][f][y][x]; the layout of weights is the kernel's.
// All kernels finish an output in `result`, where an epilogue goes.
import package::wgsl::lib::math::{at_least, at_most, erf, tanh_safe};

override TRANSPOSED: bool = false; // a window is placed at every input element, and an output sums the taps that fall on it
override ALL_IMAGES: bool = false; // a launch has the pixels of all images; or of params.image
override HAS_LOW: bool = false; // bounds
override HAS_HIGH: bool = false;
alias X = f32; // of the source
alias W = f32; // of the weights
alias B = f32; // of the bias
alias A = f32; // of the addend

struct Params {
  batch: u32,
  group_count: u32,
  channels: u32, // of the source, in a group
  quads: u32, // of the group's channels
  filters: u32, // channels of the output, in a group
  filter_quads: u32,
  height: u32, // of the source
  width: u32,
  out_height: u32,
  out_width: u32,
  window_height: u32,
  window_width: u32,
  stride_height: u32,
  stride_width: u32,
  padding_height: u32,
  padding_width: u32,
  dilation_height: u32,
  dilation_width: u32,
  parts: u32,
  span: u32, // terms of a part; those of the last may be fewer
  quads_reciprocal: f32, // 1 / quads
  width_reciprocal: f32, // 1 / window_width
  low: f32, // bounds of the output
  high: f32,
  // What a launch computes (convolution_uniform.wgsl; first_pixel and pixels: convolution_matrix.wgsl too):
  image: u32,
  part: u32,
  first_filter: u32,
  first_row: u32, // of the source
  first_pixel: u32,
  pixels: u32,
  // Its uniform arrays:
  array_channels: u32, // of the source, in each array
  array_plane: u32, // elements of a channel there
  array_filters: u32, // of the weights
  shifts: vec4<u32>, // the first element of each array: arrays begin at multiples of the adapter's alignment
  addend_strides: vec4<u32>, // from image to image, filter to filter, along y, along x
}

@group(0) @binding(0) var<storage, read> source: array<X>;
@group(0) @binding(2) var<storage, read> bias: array<B>;
@group(0) @binding(4) var<uniform> params: Params;
@group(0) @binding(6) var<storage, read> addend: array<A>;

struct Pixel { image: u32, y: u32, x: u32 }

fn pixel_count() -> u32 { return params.batch * params.out_height * params.out_width; }

fn pixel_at(index: u32) -> Pixel {
  let row = index / params.out_width;
  return Pixel(row / params.out_height, row % params.out_height, index % params.out_width);
}

// A pixel of a launch.
fn launch_pixel(index: u32) -> Pixel {
  @if(ALL_IMAGES) return pixel_at(index);
  @else return Pixel(params.image, index / params.out_width, index % params.out_width);
}

fn launch_image(index: u32) -> u32 {
  @if(ALL_IMAGES) return index / (params.out_height * params.out_width);
  @else return params.image;
}

fn place_in_image(index: u32) -> u32 {
  @if(ALL_IMAGES) return index % (params.out_height * params.out_width);
  @else return index;
}

fn pixel_after(pixel: Pixel) -> Pixel {
  let x = select(pixel.x + 1u, 0u, pixel.x + 1u == params.out_width);
  let row = pixel.y + select(0u, 1u, x == 0u);
  let y = select(row, 0u, row == params.out_height);
  return Pixel(pixel.image + select(0u, 1u, x == 0u && y == 0u), y, x);
}

// The source element under a tap at a pixel: its index in a plane, and whether it is inside the plane.
struct TapInput { index: u32, inside: bool }

// Positions before the first row or column wrap around to large numbers.
fn tap_input(pixel: Pixel, tap_y: u32, tap_x: u32) -> TapInput {
  @if(TRANSPOSED) {
    let y = pixel.y + params.padding_height - tap_y * params.dilation_height;
    let x = pixel.x + params.padding_width - tap_x * params.dilation_width;
    let row = y / params.stride_height;
    let column = x / params.stride_width;
    let is_whole = row * params.stride_height == y && column * params.stride_width == x;
    let inside = is_whole && row < params.height && column < params.width;
    return TapInput(select(0u, row * params.width + column, inside), inside);
  }
  @else {
    let y = pixel.y * params.stride_height + tap_y * params.dilation_height - params.padding_height;
    let x = pixel.x * params.stride_width + tap_x * params.dilation_width - params.padding_width;
    let inside = y < params.height && x < params.width;
    return TapInput(select(0u, y * params.width + x, inside), inside);
  }
}

@if(activation) fn activation(x: f32) -> f32; // a formula that the launch gives

// The bias of a filter, counted over all groups, and what is added to it at a pixel.
fn added(row: u32) -> f32 {
  @if(bias) return f32(bias[row]);
  @else return 0.0;
}

fn beside(pixel: Pixel, row: u32) -> f32 {
  @if(addend) {
    let at = vec4(pixel.image, row, pixel.y, pixel.x) * params.addend_strides;
    return f32(addend[at.x + at.y + at.z + at.w]);
  }
  @else return 0.0;
}

fn bounded(value: f32) -> f32 {
  @if(HAS_LOW && HAS_HIGH) return at_most(at_least(value, params.low), params.high);
  @elif(HAS_LOW) return at_least(value, params.low);
  @elif(HAS_HIGH) return at_most(value, params.high);
  @else return value;
}

fn activated(x: f32) -> f32 {
  @if(activation) return activation(x);
  @else return x;
}

// Finishes a sum; `row` is the filter, counted over all groups.
fn result(pixel: Pixel, row: u32, sum: f32) -> f32 {
  return activated(bounded(sum + added(row) + beside(pixel, row)));
}
