// Four of the 4-bit weights of a word as floats, multiplied by 1, 16, 256 and 4096: a nibble is not shifted but stays
// at its place in the lowest bits of the float 2^23, so that a mask, an OR and a subtraction are enough. x is
// multiplied by the inverse (`shrinkage`).
const WORD_QUADS = 2u; // fours of weights in a word

fn grown(word: u32, quad: u32) -> vec4<f32> {
  let nibbles = vec4(word >> (16u * quad)) & vec4(0xfu, 0xf0u, 0xf00u, 0xf000u);
  return bitcast<vec4<f32>>(nibbles | vec4(0x4b000000u)) - (8388608.0 + 8.0 * vec4(1.0, 16.0, 256.0, 4096.0));
}

// The factor of x for weight `index` of the four: 16^-index.
fn shrinkage(index: u32) -> f32 { return bitcast<f32>(0x3f800000u - (index << 25u)); }
