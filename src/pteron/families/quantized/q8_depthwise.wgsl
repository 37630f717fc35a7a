//! loops: HEIGHT * (1 + WIDTH) + 4
//! extent x: pixels // plane * ceil(channels, 4) * height * width
//! extent weights: ceil(channels, 4) * HEIGHT * WIDTH
// A depthwise convolution of int8: out[c] = Σ (x[c, at the tap] - zero) · w[c, tap]. One invocation computes four
// channels of one pixel, from global memory; adjacent invocations take adjacent pixels. x is
// [image][channel / 4][y][x] including its padding, weights are [channel / 4][tap], both with four channels to a
// word.
import package::wgsl::lib::index::{flat_index};
import super::lib::q8_result::{params, store};

const WORKGROUP = 64u;
override HEIGHT: u32 = 3u; // of the window
override WIDTH: u32 = 3u;

@group(0) @binding(0) var<storage, read> x: array<u32>;
@group(0) @binding(1) var<storage, read> weights: array<u32>;

@compute @workgroup_size(WORKGROUP)
fn main(@builtin(global_invocation_id) id: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>) {
  let index = flat_index(id, groups);
  let quads = (params.channels + 3u) / 4u;
  let pixel = index % params.plane;
  let quad = index / params.plane % quads;
  let image = index / params.plane / quads;
  if (image >= params.pixels / params.plane) { return; }
  let y = pixel / params.out_width * params.stride_height;
  let column = pixel % params.out_width * params.stride_width;
  let corner = ((image * quads + quad) * params.height + y) * params.width + column;
  var sums = vec4<i32>();
  for (var i = 0u; i < HEIGHT; i++) {
    for (var j = 0u; j < WIDTH; j++) {
      let values = x[corner + i * params.dilation_height * params.width + j * params.dilation_width];
      let factors = weights[(quad * HEIGHT + i) * WIDTH + j];
      sums += (unpack4xI8(values) - params.x_zero) * unpack4xI8(factors);
    }
  }
  for (var c = 0u; c < min(4u, params.channels - 4u * quad); c++) {
    store(4u * quad + c, image * params.plane + pixel, sums[c]);
  }
}
