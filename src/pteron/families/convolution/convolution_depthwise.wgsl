//! use index
//! use convolution
//! loops: window_height * (1 + window_width * (1 + WIDE)) + 2 * WIDE
//! extent weights: group_count * filters * window_height * window_width
// A convolution (lib/convolution.wgsl) of groups with one channel each. One invocation computes WIDE pixels of
// one filter, as far apart as there are invocations to a filter, so that neighbours read neighbours.
//
// Weights lie [filter][tap].
const WORKGROUP = 64u;
const WIDE = 4u;

@group(0) @binding(1) var<storage, read> weights: array<W>;

@compute @workgroup_size(WORKGROUP)
fn main(@builtin(global_invocation_id) id: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>) {
  let i = flat_index(id, groups);
  let tiles = (pixel_count() + WIDE - 1u) / WIDE;
  let first_pixel = i % tiles;
  let row = i / tiles;
  if (row >= params.group_count * params.filters) { return; }
  var pixels = array<Pixel, WIDE>();
  for (var p = 0u; p < WIDE; p++) { pixels[p] = pixel_at(min(first_pixel + p * tiles, pixel_count() - 1u)); }
  var sums = array<f32, WIDE>();
  let taps = row * params.window_height * params.window_width;
  for (var tap_y = 0u; tap_y < params.window_height; tap_y++) {
    for (var tap_x = 0u; tap_x < params.window_width; tap_x++) {
      let weight = f32(weights[taps + tap_y * params.window_width + tap_x]);
      for (var p = 0u; p < WIDE; p++) {
        let met = meet(pixels[p], tap_y, tap_x);
        let plane = pixels[p].image * params.group_count + row / params.filters;
        sums[p] += select(0.0, f32(source[plane * params.height * params.width + met.index]), met.inside) * weight;
      }
    }
  }
  for (var p = 0u; p < WIDE; p++) {
    if (first_pixel + p * tiles < pixel_count()) { store(0u, pixels[p], row, sums[p]); }
  }
}
