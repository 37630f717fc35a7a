//! loops: TAPS_Y * (1 + TAPS_X * (1 + WIDE)) + 2 * WIDE
//! extent weights: group_count * filters * TAPS_Y * TAPS_X
// A convolution (lib/convolution.wgsl) of groups with one channel each. One invocation computes WIDE pixels of
// one filter, WORKGROUP apart, so that adjacent invocations read adjacent elements.
//
// Weights are [filter][tap]; the window is known when the kernel is compiled, so that its loops unroll.
import super::lib::convolution::{Pixel, W, params, pixel_at, pixel_count, source, tap_input};
import super::lib::convolution_store::{store};

const WORKGROUP = 64u;
override WIDE: u32 = 4u;
override TAPS_Y: u32 = 3u;
override TAPS_X: u32 = 3u;

@group(0) @binding(1) var<storage, read> weights: array<W>;

@compute @workgroup_size(WORKGROUP)
fn main(
  @builtin(workgroup_id) group: vec3<u32>,
  @builtin(num_workgroups) groups: vec3<u32>,
  @builtin(local_invocation_index) local: u32,
) {
  let tiles = (pixel_count() + WORKGROUP * WIDE - 1u) / (WORKGROUP * WIDE); // of one filter
  let tile = group.x + group.y * groups.x;
  let first_pixel = tile % tiles * WORKGROUP * WIDE + local;
  let row = tile / tiles;
  if (row >= params.group_count * params.filters) { return; }
  var pixels = array<Pixel, WIDE>();
  for (var p = 0u; p < WIDE; p++) {
    pixels[p] = pixel_at(min(first_pixel + p * WORKGROUP, pixel_count() - 1u));
  }
  var sums = array<f32, WIDE>();
  for (var tap_y = 0u; tap_y < TAPS_Y; tap_y++) {
    for (var tap_x = 0u; tap_x < TAPS_X; tap_x++) {
      let weight = f32(weights[(row * TAPS_Y + tap_y) * TAPS_X + tap_x]);
      for (var p = 0u; p < WIDE; p++) {
        let input = tap_input(pixels[p], tap_y, tap_x);
        let plane = pixels[p].image * params.group_count + row / params.filters;
        let value = f32(source[plane * params.height * params.width + input.index]);
        sums[p] += select(0.0, value, input.inside) * weight;
      }
    }
  }
  for (var p = 0u; p < WIDE; p++) {
    if (first_pixel + p * WORKGROUP < pixel_count()) { store(0u, pixels[p], row, sums[p]); }
  }
}
