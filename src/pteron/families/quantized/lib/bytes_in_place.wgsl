// The four 8-bit weights of a word as floats that have grown by 1, 256, 1 and 256, in place of
// lib/nibbles_in_place.wgsl: without their sign, bytes stay in the lowest bits of 2^23.
const WORD_QUADS = 1u; // fours of weights in a word

fn grown(word: u32, quad: u32) -> vec4<f32> {
  let biased = word ^ 0x80808080u; // every byte plus 128
  let bytes = vec4(vec2(biased), vec2(biased >> 16u)) & vec4(0xffu, 0xff00u, 0xffu, 0xff00u);
  return bitcast<vec4<f32>>(bytes | vec4(0x4b000000u)) - (8388608.0 + 128.0 * vec4(1.0, 256.0, 1.0, 256.0));
}

// What the place-th of them is to be multiplied with.
fn shrinkage(place: u32) -> f32 { return select(1.0, 0.00390625, place % 2u == 1u); }
