// Converts floats to integers for int8 dot products (block floating point). A chunk of 32 floats shares a power of
// two, chosen so that its largest element becomes an integer of BITS + 1 bits. Integers are split into PLANES digits
// of eight bits, from -128 to 127, the lowest first; a word holds the digits of one number. Chunks whose largest
// element is below 2^(BITS - 126) keep fewer bits, down to none at 2^-127.
override PLANES: u32 = 3u; // digits per number: at most 3
const BITS = select(13u, 21u, PLANES == 3u);
const MIDDLE = 12582912.0; // 1.5 · 2^23: adding an integer to it leaves the integer in the lowest bits of the float
const MIDDLE_BITS = 0x4b400000u;
const HALF_DIGITS = 0x00808080u;
const NOT_A_NUMBER = 0x7fc00000u;

// The biased exponent of a chunk, from the bits of its largest magnitude; at least so large that both powers below
// are normal numbers.
fn chunk_exponent(largest: u32) -> u32 { return max(largest >> 23u, BITS + 1u); }

// chunk_power converts floats of a chunk to integers, chunk_unit is its inverse; both are exact powers of two. If a
// chunk contains an infinity or a NaN (their bits exceed those of any number), its unit is NaN.
fn chunk_power(largest: u32) -> f32 {
  return bitcast<f32>((254u + BITS - chunk_exponent(largest)) << 23u);
}
fn chunk_unit(largest: u32) -> f32 {
  return bitcast<f32>(select((chunk_exponent(largest) - BITS) << 23u, NOT_A_NUMBER, largest >= 0x7f800000u));
}

// Integers, plus MIDDLE_BITS. The limit keeps the largest from rounding up to 23 bits.
fn fixed(value: vec4<f32>, power: f32) -> vec4<u32> {
  return bitcast<vec4<u32>>(min(fma(value, vec4(power), vec4(MIDDLE)), vec4(16777215.0)));
}

// Splits integers into signed digits: adding 128 to every byte carries digits of 128 or more into the next byte;
// flipping the high bit subtracts the 128 again.
fn digits(fixed: vec4<u32>) -> vec4<u32> {
  return (fixed + vec4(HALF_DIGITS - MIDDLE_BITS)) ^ vec4(HALF_DIGITS);
}
