//! loops: ceil(WORDS, LANES) + 4 * 8 + 4
// A product of int8 (lib/q8.wgsl) for few pixels. LANES invocations compute four channels of one pixel, each from
// a part of the words.
import package::wgsl::lib::rows::{LANES, Lane, WORKGROUP, row_index, row_sum};
import super::lib::q8::{DEPTH, WORDS, conclude, corner, dots, load, load_weights, tap_word};
import super::lib::q8_result::{params};

@compute @workgroup_size(WORKGROUP)
fn main(
  @builtin(workgroup_id) workgroup: vec3<u32>,
  @builtin(num_workgroups) workgroups: vec3<u32>,
  @builtin(local_invocation_index) local: u32,
) {
  let row = row_index(workgroup, workgroups, local);
  let quads = (params.channels + 3u) / 4u;
  let lane = local % LANES;
  let quad = row % quads;
  let pixel = min(row / quads % params.pixels, params.pixels - 1u);
  let group = min(row / quads / params.pixels, params.group_count - 1u);
  let at = corner(pixel);
  var sums = vec4<i32>();
  for (var word = lane; word < WORDS; word += LANES) {
    sums += dots(load(tap_word(at, group, word / DEPTH), word % DEPTH), load_weights(group, quad, word));
  }
  for (var c = 0u; c < 4u; c++) {
    let sum = i32(row_sum(Lane(sums[c]), local));
    let channel = 4u * quad + c;
    let is_inside = channel < params.channels && row < quads * params.pixels * params.group_count;
    if (lane == 0u && is_inside) { conclude(group, channel, pixel, sum); }
  }
}
