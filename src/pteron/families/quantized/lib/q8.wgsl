//! extent x: pixels // plane * height * width * group_count * DEPTH
//! extent weights: group_count * ceil(channels, 4) * 4 * WORDS
//! extent weight_sums: channels * group_count
// Products of int8 with sums in i32: Σ x · w over a window of TAPS elements and the channels of a group, four to
// a word. x is [image][y][x][group][word], weights are [group][channel / 4][tap][word][channel % 4]; weights that pad
// a word are zero. Outside x the value is the zero point, so that Σ x · w - zero · Σ w is exact.
// A linear layer is a window of one element on images of one pixel.
import super::q8_result::{params, source, store};

override TAPS: u32 = 9u;
override WINDOW_WIDTH: u32 = 3u;
override DEPTH: u32 = 1u; // words of one tap
override IS_PADDED: bool = false; // whether x includes its padding, so that no tap is outside
const WORDS = TAPS * DEPTH;

@group(0) @binding(0) var<storage, read> x: array<u32>;
@group(0) @binding(1) var<storage, read> weights: array<vec4<u32>>;
@group(0) @binding(6) var<storage, read> weight_sums: array<i32>;

// (image, y, x) of a pixel of the output.
fn corner(pixel: u32) -> vec3<u32> {
  let rest = pixel % params.plane;
  return vec3(pixel / params.plane, rest / params.out_width, rest % params.out_width);
}

// The first word of x at a tap of the window, or -1 outside x.
fn tap_word(at: vec3<u32>, group: u32, tap: u32) -> i32 {
  let y = source(
    at.y, tap / WINDOW_WIDTH, params.stride_height, params.padding_height, params.dilation_height
  );
  let x = source(at.z, tap % WINDOW_WIDTH, params.stride_width, params.padding_width, params.dilation_width);
  let is_inside = IS_PADDED || (y >= 0 && x >= 0 && y < i32(params.height) && x < i32(params.width));
  let word = (((i32(at.x) * i32(params.height) + y) * i32(params.width) + x) * i32(params.group_count)
    + i32(group)) * i32(DEPTH);
  return select(-1, word, is_inside);
}

// A word of x, from the first word at a tap; four zero points outside x.
fn load(first: i32, word: u32) -> u32 {
  if (IS_PADDED) { return x[u32(first) + word]; }
  let found = x[u32(max(first, 0)) + select(0u, word, first >= 0)];
  return select((u32(params.x_zero) & 255u) * 0x01010101u, found, first >= 0);
}

// Four channels of a group at one word.
fn load_weights(group: u32, quad: u32, word: u32) -> vec4<u32> {
  return weights[(group * ((params.channels + 3u) / 4u) + quad) * WORDS + word];
}

fn dots(x: u32, w: vec4<u32>) -> vec4<i32> {
  return vec4(dot4I8Packed(x, w.x), dot4I8Packed(x, w.y), dot4I8Packed(x, w.z), dot4I8Packed(x, w.w));
}

// Stores a channel of a group for a pixel, from Σ x · w.
fn conclude(group: u32, channel: u32, pixel: u32, sum: i32) {
  let n = group * params.channels + channel;
  store(n, pixel, sum - params.x_zero * weight_sums[n]);
}
