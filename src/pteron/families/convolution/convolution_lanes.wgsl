//! loops: ceil(window_height * window_width * channels, LANES) + 8
//! extent weights: group_count * filters * window_height * window_width * channels
// A convolution (lib/convolution.wgsl) with few pixels: LANES invocations share one output and walk its terms
// together.
//
// Weights are [filter][tap][channel].
import package::wgsl::lib::rows::{WORKGROUP, row_index, row_sum};
import super::lib::convolution::{W, params, pixel_at, pixel_count, source, tap_input};
import super::lib::convolution_store::{store};

@group(0) @binding(1) var<storage, read> weights: array<W>;

@compute @workgroup_size(WORKGROUP)
fn main(
  @builtin(workgroup_id) group: vec3<u32>,
  @builtin(num_workgroups) groups: vec3<u32>,
  @builtin(local_invocation_index) local: u32,
) {
  let i = row_index(group, groups, local);
  let rows = params.group_count * params.filters;
  let row = i % rows;
  let pixel = pixel_at(i / rows);
  let inside = i / rows < pixel_count();
  let terms = select(0u, params.window_height * params.window_width * params.channels, inside);
  let first_plane = (pixel.image * params.group_count + row / params.filters) * params.channels;
  var sum = 0.0;
  for (var term = local % LANES; term < terms; term += LANES) {
    let tap = term / params.channels;
    let input = tap_input(pixel, tap / params.window_width, tap % params.window_width);
    let at = (first_plane + term % params.channels) * params.height * params.width + input.index;
    sum += select(0.0, f32(source[at]), input.inside) * f32(weights[row * terms + term]);
  }
  let total = row_sum(sum, local);
  if (inside && local % LANES == 0u) { store(0u, pixel, row, total); }
}
