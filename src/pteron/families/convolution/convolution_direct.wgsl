//! loops: (1 + WIDE) * span + (1 + 3 * WIDE) * (min(window_height * window_width, ceil(span, 4 * max(quads, 1)) + 1) + 1) + 9 * WIDE
//! extent weights: group_count * window_height * window_width * quads * 16 * filter_quads
// A convolution (lib/convolution.wgsl). One invocation computes WIDE pixels of one or two quads of filters, directly
// from global memory: no barriers, which is fastest on software adapters and for groups with few filters. Its pixels
// are as far apart as there are invocations per quad of filters, so that adjacent invocations read adjacent elements.
//
// Weights are [group][k][filter], filters padded to quads.
import package::wgsl::lib::index::{flat_index};
import super::lib::convolution::{Pixel, W, params, pixel_at, pixel_count, source, tap_input};
import super::lib::convolution_store::{store};

const WORKGROUP = 64u;
override WIDE: u32 = 4u;
override QUADS: u32 = 1u; // of filters: 1 or 2

@group(0) @binding(1) var<storage, read> weights: array<vec4<W>>;

@compute @workgroup_size(WORKGROUP)
fn main(@builtin(global_invocation_id) id: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>) {
  let i = flat_index(id, groups);
  let tiles = (pixel_count() + WIDE - 1u) / WIDE;
  let first_pixel = i % tiles;
  let rows = (params.filter_quads + QUADS - 1u) / QUADS;
  let filter_quad = i / tiles % rows * QUADS;
  let next_quad = min(filter_quad + 1u, params.filter_quads - 1u);
  let slice = i / tiles / rows; // part · groups + group
  if (slice >= params.parts * params.group_count) { return; }
  let part = slice / params.group_count;
  let group_index = slice % params.group_count;
  let plane = params.height * params.width;
  let depth = params.window_height * params.window_width * params.quads * 4u;
  let k_end = min((part + 1u) * params.span, depth);

  var pixels = array<Pixel, WIDE>();
  for (var p = 0u; p < WIDE; p++) { pixels[p] = pixel_at(min(first_pixel + p * tiles, pixel_count() - 1u)); }
  var sums = array<vec4<f32>, WIDE>();
  var sums_next = array<vec4<f32>, WIDE>();
  var k = part * params.span;
  while (k < k_end) {
    let tap = k / (4u * params.quads);
    let tap_first = tap * 4u * params.quads;
    var at = array<u32, WIDE>();
    var inside = array<bool, WIDE>();
    for (var p = 0u; p < WIDE; p++) {
      let input = tap_input(pixels[p], tap / params.window_width, tap % params.window_width);
      let first_plane = (pixels[p].image * params.group_count + group_index) * params.channels;
      at[p] = first_plane * plane + input.index;
      inside[p] = input.inside;
    }
    var block = array<vec4<f32>, WIDE>();
    var block_next = array<vec4<f32>, WIDE>();
    let tap_end = min(tap_first + params.channels, k_end);
    for (; k < tap_end; k++) {
      let row = (group_index * depth + k) * params.filter_quads;
      let weight = vec4<f32>(weights[row + filter_quad]);
      var weight_next = vec4<f32>();
      if (QUADS == 2u) { weight_next = vec4<f32>(weights[row + next_quad]); }
      let channel = (k - tap_first) * plane;
      for (var p = 0u; p < WIDE; p++) {
        let value = select(0.0, f32(source[at[p] + channel]), inside[p]);
        block[p] += value * weight;
        if (QUADS == 2u) { block_next[p] += value * weight_next; }
      }
    }
    for (var p = 0u; p < WIDE; p++) {
      sums[p] += block[p];
      sums_next[p] += block_next[p];
    }
    k = tap_first + 4u * params.quads;
  }
  let row = group_index * params.filters + 4u * filter_quad;
  let count = min(4u * QUADS, params.filters - 4u * filter_quad);
  for (var p = 0u; p < WIDE; p++) {
    if (first_pixel + p * tiles < pixel_count()) {
      for (var f = 0u; f < count; f++) {
        store(part, pixels[p], row + f, select(sums_next[p][f % 4u], sums[p][f % 4u], f < 4u));
      }
    }
  }
}
