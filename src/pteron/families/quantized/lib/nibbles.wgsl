// Four 4-bit weights of a word, from nibble `first` (0 or 4) on, as floats. They are stored as their
// value plus 8. A nibble in the lowest bits of 2^23 is that number plus 2^23, so that a subtraction takes
// the place of a conversion.
fn unpack_nibbles(word: u32, first: u32) -> vec4<f32> {
  let nibbles = (vec4(word) >> (vec4(0u, 4u, 8u, 12u) + 4u * first)) & vec4(15u);
  return bitcast<vec4<f32>>(nibbles | vec4(0x4b000000u)) - 8388616.0;
}
