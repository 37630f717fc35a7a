// Floats as whole numbers that products of int8 can take. A chunk of 32 shares a power of two, by which its
// largest becomes a number of BITS + 1 bits. The numbers are written in digits of eight bits, from -128 to 127,
// the lowest first: a word holds a number's digits; PLANES of them are used. Chunks whose largest is below
// 2^(BITS - 126) keep fewer bits, down to none at 2^-127.
const PLANES = 3u; // digits of a number: at most 3
const BITS = select(13u, 21u, PLANES == 3u);
const MIDDLE = 12582912.0; // 1.5 · 2^23: a whole number next to it is the lowest bits of the float
const MIDDLE_BITS = 0x4b400000u;
const HALF_DIGITS = 0x00808080u;
const NOT_A_NUMBER = 0x7fc00000u;

// The exponent of a chunk, from the largest bits of its magnitudes; both powers below are normal numbers.
fn chunk_exponent(largest: u32) -> u32 { return max(largest >> 23u, BITS + 1u); }

// What a chunk is multiplied by, and what its whole numbers count: both exact. A chunk with an infinity or a
// NaN, whose bits are larger than those of any number, is not a number as a whole.
fn chunk_power(largest: u32) -> f32 {
  return bitcast<f32>((254u + BITS - chunk_exponent(largest)) << 23u);
}
fn chunk_unit(largest: u32) -> f32 {
  return bitcast<f32>(select((chunk_exponent(largest) - BITS) << 23u, NOT_A_NUMBER, largest >= 0x7f800000u));
}

// Whole numbers, plus MIDDLE_BITS; the largest of 22 bits would round up to 23.
fn fixed(value: vec4<f32>, power: f32) -> vec4<u32> {
  return bitcast<vec4<u32>>(min(fma(value, vec4(power), vec4(MIDDLE)), vec4(16777215.0)));
}

// Adding half a digit everywhere carries what is 128 or more upwards; flipping that bit takes it away again.
fn digits(fixed: vec4<u32>) -> vec4<u32> {
  return (fixed + vec4(HALF_DIGITS - MIDDLE_BITS)) ^ vec4(HALF_DIGITS);
}
