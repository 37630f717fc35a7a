//! use index
//! use q8_result
//! loops: TAPS
//! extent x: places // plane * height * width * group_count
//! extent weights: group_count * ceil(TAPS, 4)
// A depthwise convolution of int8: out[c, y, x] = result(Σ (x[c, under the tap] - zero) · w[c, tap]), straight from
// memory. One invocation computes one output. Weights lie [channel][tap], four to a word. Every channel is a
// group of one.
const WORKGROUP = 64u;
const TAPS = 9u;
const WINDOW_WIDTH = 3u;

@group(0) @binding(0) var<storage, read> x: array<i32>;
@group(0) @binding(1) var<storage, read> weights: array<u32>;

@compute @workgroup_size(WORKGROUP)
fn main(@builtin(global_invocation_id) id: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>) {
  let i = flat_index(id, groups);
  let channel = i / params.plane % params.group_count;
  let image = i / params.plane / params.group_count;
  let place = i % params.plane;
  if (image >= params.places / params.plane) { return; }
  let plane = i32((image * params.group_count + channel) * params.height * params.width);
  var sum = 0;
  for (var tap = 0u; tap < TAPS; tap++) {
    let y = source(
      place / params.out_width, tap / WINDOW_WIDTH,
      params.stride_height, params.padding_height, params.dilation_height
    );
    let column = source(
      place % params.out_width, tap % WINDOW_WIDTH,
      params.stride_width, params.padding_width, params.dilation_width
    );
    if (y >= 0 && column >= 0 && y < i32(params.height) && column < i32(params.width)) {
      let word = weights[channel * ((TAPS + 3u) / 4u) + tap / 4u];
      let weight = extractBits(i32(word), 8u * (tap % 4u), 8u);
      sum += (x[plane + y * i32(params.width) + column] - params.x_zero) * weight;
    }
  }
  store(channel, image * params.plane + place, sum);
}
