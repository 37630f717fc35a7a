//! loops: TAPS * (1 + TILE + DEPTH * (1 + TILE)) + 6 * TILE
// A product of int8 (lib/q8.wgsl) without barriers, fastest on software adapters. One invocation computes four
// channels of TILE pixels; adjacent invocations take adjacent pixels.
import package::wgsl::lib::index::{flat_index};
import super::lib::q8::{DEPTH, TAPS, WORDS, conclude, corner, dots, load, load_weights, tap_word};
import super::lib::q8_result::{params};

const WORKGROUP = 64u;
override TILE: u32 = 4u;

@compute @workgroup_size(WORKGROUP)
fn main(@builtin(global_invocation_id) id: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>) {
  let i = flat_index(id, groups);
  let tiles = (params.pixels + TILE - 1u) / TILE;
  let quads = (params.channels + 3u) / 4u;
  let first = i % tiles; // its pixels are `tiles` apart
  let quad = i / tiles % quads;
  let group = i / tiles / quads;
  if (group >= params.group_count) { return; }
  var corners = array<vec3<u32>, TILE>();
  for (var t = 0u; t < TILE; t++) { corners[t] = corner(min(first + t * tiles, params.pixels - 1u)); }
  var sums = array<vec4<i32>, TILE>();
  for (var tap = 0u; tap < TAPS; tap++) {
    var words = array<i32, TILE>();
    for (var t = 0u; t < TILE; t++) { words[t] = tap_word(corners[t], group, tap); }
    for (var word = 0u; word < DEPTH; word++) {
      let w = load_weights(group, quad, tap * DEPTH + word);
      for (var t = 0u; t < TILE; t++) { sums[t] += dots(load(words[t], word), w); }
    }
  }
  for (var t = 0u; t < TILE; t++) {
    let pixel = first + t * tiles;
    if (pixel < params.pixels) {
      for (var c = 0u; c < min(4u, params.channels - 4u * quad); c++) {
        conclude(group, 4u * quad + c, pixel, sums[t][c]);
      }
    }
  }
}
