//! loops: ceil(WORDS, STEP) * (1 + ceil(HEIGHT * STEP, 4 * WORKGROUP) + WIDTH * STEP // WORKGROUP + STEP) + 5 * TALL
// A product of int8 (lib/q8.wgsl). A workgroup of 16×16 invocations computes a tile of 16·TALL channels by 64
// pixels, TALL × 4 outputs each. Each step loads STEP words of weights and of x into workgroup memory, the word
// outermost, so that an invocation reads its channels and pixels as vec4s. The grid is a list of tiles: pixels
// first, then channels, then groups.
import super::lib::q8::{DEPTH, WORDS, conclude, corner, dots, load, load_weights, tap_word};
import super::lib::q8_result::{params};

const WORKGROUP = 256u;
override TALL: u32 = 4u; // channels per invocation: 4 or 8
const HEIGHT = 16u * TALL; // channels of the tile
const WIDTH = 64u; // pixels of the tile
const STEP = 8u;
const WIDTH_PITCH = WIDTH / 4u + 1u; // vec4s from one word to the next: one more avoids bank conflicts of stores

var<workgroup> w_tile: array<vec4<u32>, STEP * HEIGHT / 4u>;
var<workgroup> x_tile: array<vec4<u32>, STEP * WIDTH_PITCH>;

@compute @workgroup_size(WORKGROUP)
fn main(
  @builtin(workgroup_id) workgroup: vec3<u32>,
  @builtin(num_workgroups) workgroups: vec3<u32>,
  @builtin(local_invocation_index) local: u32,
) {
  let tile = workgroup.x + workgroup.y * workgroups.x;
  let across = (params.pixels + WIDTH - 1u) / WIDTH;
  let down = (params.channels + HEIGHT - 1u) / HEIGHT;
  let group = tile / across / down;
  if (group >= params.group_count) { return; }
  let pixel_base = tile % across * WIDTH;
  let quad_base = tile / across % down * (HEIGHT / 4u);
  let quad_last = (params.channels + 3u) / 4u - 1u;
  let channel_quad = local / 16u; // in vec4s: 4 channels and, if TALL is 8, the 4 that are 64 further
  let pixel_quad = local % 16u; // in vec4s

  // Each invocation loads the same word of every step, of two pixels.
  let x_word = local % STEP;
  let x_first = local / STEP;
  let first = corner(min(pixel_base + x_first, params.pixels - 1u));
  let second = corner(min(pixel_base + x_first + WIDTH / 2u, params.pixels - 1u));

  var sums = array<vec4<i32>, TALL>();
  for (var base = 0u; base < WORDS; base += STEP) {
    for (var i = local; i < HEIGHT / 4u * STEP; i += WORKGROUP) {
      let word = base + i % STEP;
      let quad = i / STEP;
      let w = load_weights(group, min(quad_base + quad, quad_last), min(word, WORDS - 1u));
      w_tile[i % STEP * (HEIGHT / 4u) + quad] = select(vec4(0u), w, word < WORDS);
    }
    for (var i = 0u; i < WIDTH * STEP / WORKGROUP; i++) {
      let word = min(base + x_word, WORDS - 1u); // past the last word, weights are zero
      let pixel = x_first + i * (WIDTH / 2u);
      let at = select(first, second, i == 1u);
      x_tile[x_word * WIDTH_PITCH + pixel / 4u][pixel % 4u] =
        load(tap_word(at, group, word / DEPTH), word % DEPTH);
    }
    workgroupBarrier();
    for (var k = 0u; k < STEP; k++) {
      let right = x_tile[k * WIDTH_PITCH + pixel_quad];
      let left = w_tile[k * (HEIGHT / 4u) + channel_quad];
      sums[0] += dots(left.x, right);
      sums[1] += dots(left.y, right);
      sums[2] += dots(left.z, right);
      sums[3] += dots(left.w, right);
      if (TALL == 8u) {
        let lower = w_tile[k * (HEIGHT / 4u) + channel_quad + 16u];
        sums[TALL - 4u] += dots(lower.x, right);
        sums[TALL - 3u] += dots(lower.y, right);
        sums[TALL - 2u] += dots(lower.z, right);
        sums[TALL - 1u] += dots(lower.w, right);
      }
    }
    workgroupBarrier();
  }
  for (var t = 0u; t < TALL; t++) {
    let channel = 4u * (quad_base + channel_quad) + t % 4u + t / 4u * 64u;
    for (var s = 0u; s < 4u; s++) {
      let pixel = pixel_base + 4u * pixel_quad + s;
      if (channel < params.channels && pixel < params.pixels) {
        conclude(group, channel, pixel, sums[t][s]);
      }
    }
  }
}
