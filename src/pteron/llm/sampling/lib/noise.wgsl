// Noise from a seed, a step and a token: the same bits on every device.

// Threefry-2x32 with 20 rounds (Salmon et al., 2011): two random words for every key and counter.
fn threefry(key: vec2<u32>, counter: vec2<u32>) -> vec2<u32> {
  let third = key.x ^ key.y ^ 0x1bd11bdau;
  var words = four_rounds(counter + key, vec4(13u, 15u, 26u, 6u));
  words = four_rounds(words + vec2(key.y, third + 1u), vec4(17u, 29u, 16u, 24u));
  words = four_rounds(words + vec2(third, key.x + 2u), vec4(13u, 15u, 26u, 6u));
  words = four_rounds(words + vec2(key.x, key.y + 3u), vec4(17u, 29u, 16u, 24u));
  words = four_rounds(words + vec2(key.y, third + 4u), vec4(13u, 15u, 26u, 6u));
  return words + vec2(third, key.x + 5u);
}

fn four_rounds(words: vec2<u32>, turns: vec4<u32>) -> vec2<u32> {
  return turn(turn(turn(turn(words, turns.x), turns.y), turns.z), turns.w);
}

fn turn(words: vec2<u32>, by: u32) -> vec2<u32> {
  let sum = words.x + words.y;
  return vec2(sum, ((words.y << by) | (words.y >> (32u - by))) ^ sum);
}

fn random_words(seed: u32, step: u32, token: u32) -> vec2<u32> {
  return threefry(vec2(seed, step), vec2(token, 0u));
}

// A draw from the exponential distribution, -log(u), from 64 random bits: u between 0 and 1. u is represented by its
// distance to the nearer end, from 2^-65 to 1/2, so that -log(u) is exact to f32 at both ends.
fn exponential(words: vec2<u32>) -> f32 {
  let is_near_one = words.x > 0x7fffffffu;
  let nearer = select(words, ~words, is_near_one);
  let distance = (f32(nearer.x) + (f32(nearer.y) + 0.5) * 0x1p-32) * 0x1p-32;
  return select(-log(distance), minus_log_of_one_less(distance), is_near_one);
}

// -log(1 - x) for x from 0 to 1/2, with z = x / (2 - x): 2 atanh(z) = 2 (z + z^3 / 3 + z^5 / 5 + ...).
fn minus_log_of_one_less(x: f32) -> f32 {
  let z = x / (2.0 - x);
  let s = z * z;
  var series = 1.0 / 15.0;
  series = series * s + 1.0 / 13.0;
  series = series * s + 1.0 / 11.0;
  series = series * s + 1.0 / 9.0;
  series = series * s + 1.0 / 7.0;
  series = series * s + 1.0 / 5.0;
  series = series * s + 1.0 / 3.0;
  return 2.0 * (z + z * s * series);
}

// Gumbel noise, from -3.9 to 45.1: the token with the greatest log-probability + noise is a draw.
fn gumbel(seed: u32, step: u32, token: u32) -> f32 {
  return -log(exponential(random_words(seed, step, token)));
}
