//! use math
//! extent source: batch * group_count * channels * height * width
//! extent bias: group_count * filters
//! extent out: parts * batch * group_count * filters * out_height * out_width
// Convolutions: out[n, f, y, x] = result(f, Σ weight[f, c, tap] · input[n, c, y', x']) over taps and the channels
// of f's group, where (y', x') is what the tap meets at (y, x); outside the input it meets nothing.
//
// A pixel is a place (n, y, x) of the output. k counts through the sum's terms, tap · 4 · quads + channel: the
// channels of a group are padded to quads. A deep sum is cut into `parts`, each over `span` of k: then out holds
// [part] sums, and convolution_merge.wgsl finishes.
alias X = f32;
alias W = f32;
alias B = f32;
alias R = f32;

struct Params {
  batch: u32,
  group_count: u32,
  channels: u32, // of the input, in a group
  quads: u32, // of these
  filters: u32, // channels of the output, in a group
  filter_quads: u32,
  height: u32, // of the input
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
  span: u32,
  quads_reciprocal: f32,
  width_reciprocal: f32, // of the window
  low: f32,
  high: f32,
}

@group(0) @binding(0) var<storage, read> source: array<X>;
@group(0) @binding(2) var<storage, read> bias: array<B>;
@group(0) @binding(3) var<storage, read_write> out: array<R>;
@group(0) @binding(4) var<uniform> params: Params;

struct Pixel { image: u32, y: u32, x: u32 }

fn pixel_count() -> u32 { return params.batch * params.out_height * params.out_width; }

fn pixel_at(index: u32) -> Pixel {
  let row = index / params.out_width;
  return Pixel(row / params.out_height, row % params.out_height, index % params.out_width);
}

// What a tap meets at a pixel: an index into a plane of the input.
struct Meeting { index: u32, inside: bool }

// What lies before the first row or column wraps round to large numbers.
fn meet(pixel: Pixel, tap_y: u32, tap_x: u32) -> Meeting {
  let y = pixel.y * params.stride_height + tap_y * params.dilation_height - params.padding_height;
  let x = pixel.x * params.stride_width + tap_x * params.dilation_width - params.padding_width;
  let inside = y < params.height && x < params.width;
  return Meeting(select(0u, y * params.width + x, inside), inside);
}

fn added(row: u32) -> f32 { return f32(bias[row]); }

// What becomes of a part's sum; `row` is the filter, counted through all groups.
fn result(row: u32, sum: f32) -> f32 { return bounded(sum + added(row)); }
fn bounded(value: f32) -> f32 { return at_most(at_least(value, params.low), params.high); }

fn store(part: u32, pixel: Pixel, row: u32, sum: f32) {
  let plane = (part * params.batch + pixel.image) * params.group_count * params.filters + row;
  out[(plane * params.out_height + pixel.y) * params.out_width + pixel.x] = R(result(row, sum));
}
