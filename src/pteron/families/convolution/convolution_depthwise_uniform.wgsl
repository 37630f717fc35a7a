//! loops: TAPS_Y
//! extent source_a: 4 * ceil(array_channels * array_plane + shifts[0], 4)
//! extent weights_a: 4 * ceil(array_filters * TAPS_Y * TAPS_X, 4)
// A convolution (lib/convolution.wgsl) of groups with one channel each, of some channels of one image, for software
// adapters: the source and the weights, [filter][tap], are uniform arrays. One invocation computes four adjacent
// pixels of a row, of one filter: it loads all elements that they see in a row of the source once.
import package::wgsl::lib::index::{flat_index};
import super::lib::convolution::{Pixel, params};
import super::lib::convolution_store::{store_in_row};

const WORKGROUP = 64u;
const WIDE = 4u; // pixels
override TAPS_Y: u32 = 3u;
override TAPS_X: u32 = 3u;
override STRIDE: u32 = 1u; // along x
override DILATION: u32 = 1u;
const SEEN = (WIDE - 1u) * STRIDE + (TAPS_X - 1u) * DILATION + 1u; // elements of a row
override ROOM: u32 = 64u; // vec4s of the source
override WEIGHTS_ROOM: u32 = 64u;

@group(0) @binding(9) var<uniform> source_a: array<vec4<f32>, ROOM>;
@group(0) @binding(10) var<uniform> weights_a: array<vec4<f32>, WEIGHTS_ROOM>;

@compute @workgroup_size(WORKGROUP)
fn main(@builtin(global_invocation_id) id: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>) {
  let i = flat_index(id, groups);
  let strips = (params.out_width + WIDE - 1u) / WIDE; // of a row
  let row = i / (strips * params.out_height);
  if (row >= params.array_filters) { return; }
  let pixel = Pixel(params.image, i / strips % params.out_height, i % strips * WIDE);
  let plane = row / params.filters * params.array_plane + params.shifts[0];
  let first_x = pixel.x * STRIDE - params.padding_width; // wraps around before the first column
  var sums = array<f32, WIDE>();
  for (var tap_y = 0u; tap_y < TAPS_Y; tap_y++) {
    let y = pixel.y * params.stride_height + tap_y * params.dilation_height - params.padding_height;
    let line = plane + min(y, params.height - 1u) * params.width;
    var seen = array<f32, SEEN>();
    //! unroll
    for (var e = 0u; e < SEEN; e++) {
      let at = line + min(first_x + e, params.width - 1u);
      seen[e] = select(0.0, source_a[at / 4u][at % 4u], y < params.height && first_x + e < params.width);
    }
    //! unroll
    for (var tap_x = 0u; tap_x < TAPS_X; tap_x++) {
      let tap = (row * TAPS_Y + tap_y) * TAPS_X + tap_x;
      let weight = weights_a[tap / 4u][tap % 4u];
      //! unroll
      for (var p = 0u; p < WIDE; p++) { sums[p] += seen[p * STRIDE + tap_x * DILATION] * weight; }
    }
  }
  store_in_row(pixel, params.first_filter + row, vec4(sums[0], sums[1], sums[2], sums[3]));
}
