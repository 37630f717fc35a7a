// The four 8-bit weights of a word as floats, multiplied by 1, 256, 1 and 256; replaces lib/nibbles_in_place.wgsl.
// Bytes plus 128 are inserted into the lowest bits of the float 2^23.
const WORD_QUADS = 1u; // fours of weights in a word

fn grown(word: u32, quad: u32) -> vec4<f32> {
  let biased = word ^ 0x80808080u; // every byte plus 128
  let bytes = vec4(vec2(biased), vec2(biased >> 16u)) & vec4(0xffu, 0xff00u, 0xffu, 0xff00u);
  return bitcast<vec4<f32>>(bytes | vec4(0x4b000000u)) - (8388608.0 + 128.0 * vec4(1.0, 256.0, 1.0, 256.0));
}

// The factor of x for weight `index` of the four.
fn shrinkage(index: u32) -> f32 { return select(1.0, 0.00390625, index % 2u == 1u); }
