//! use index
//! use convolution
//! loops: TAPS_Y * (1 + TAPS_X)
//! extent source_a: 4 * ROOM
//! extent weights_a: 4 * WEIGHTS_ROOM
// A convolution (lib/convolution.wgsl) of groups with one channel each, of some channels of one image, for software
// adapters: the source and the weights, [filter][tap], are uniform arrays. One invocation computes four adjacent
// pixels of one filter.
const WORKGROUP = 64u;
const WIDE = 4u; // pixels
const TAPS_Y = 3u;
const TAPS_X = 3u;
const CHANNELS = 1u;
const PLANE = 4u; // elements of a channel
const FILTERS = 1u; // in the weights
const ROOM = (CHANNELS * PLANE + 3u) / 4u;
const WEIGHTS_ROOM = (FILTERS * TAPS_Y * TAPS_X + 3u) / 4u;

@group(0) @binding(9) var<uniform> source_a: array<vec4<f32>, ROOM>;
@group(0) @binding(10) var<uniform> weights_a: array<vec4<f32>, WEIGHTS_ROOM>;

@compute @workgroup_size(WORKGROUP)
fn main(@builtin(global_invocation_id) id: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>) {
  let i = flat_index(id, groups);
  let strips = (params.pixels + WIDE - 1u) / WIDE;
  let row = i / strips;
  if (row >= FILTERS) { return; }
  let plane = row / params.filters * PLANE;
  var pixels = array<Pixel, WIDE>();
  //! unroll
  for (var p = 0u; p < WIDE; p++) {
    pixels[p] = launch_pixel(min(i % strips * WIDE + p, params.pixels - 1u));
  }
  var sums = array<f32, WIDE>();
  for (var tap_y = 0u; tap_y < TAPS_Y; tap_y++) {
    for (var tap_x = 0u; tap_x < TAPS_X; tap_x++) {
      let tap = (row * TAPS_Y + tap_y) * TAPS_X + tap_x;
      let weight = weights_a[tap / 4u][tap % 4u];
      //! unroll
      for (var p = 0u; p < WIDE; p++) {
        let input = tap_input(pixels[p], tap_y, tap_x);
        let at = plane + input.index;
        sums[p] += select(0.0, source_a[at / 4u][at % 4u], input.inside) * weight;
      }
    }
  }
  store_pixels(0u, i % strips * WIDE, params.first_filter + row, vec4(sums[0], sums[1], sums[2], sums[3]));
}
