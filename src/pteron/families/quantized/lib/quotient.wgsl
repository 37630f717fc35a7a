// a / b, rounded to the nearest float as IEEE 754 wants it: WGSL's own division may be off by several. It is a
// long division of the significands, a digit of eight bits at a time. Where a, b or the quotient is not a
// normal number, it is the plain division.
fn quotient(a: f32, b: f32) -> f32 {
  let a_bits = bitcast<u32>(a);
  let b_bits = bitcast<u32>(b);
  let a_exponent = (a_bits >> 23u) & 255u;
  let b_exponent = (b_bits >> 23u) & 255u;
  let divisor = (b_bits & 0x7fffffu) | 0x800000u;
  var rest = (a_bits & 0x7fffffu) | 0x800000u;
  let shift = select(0u, 1u, rest < divisor);
  let exponent = i32(a_exponent) - i32(b_exponent) + 127 - i32(shift);
  let is_normal = min(a_exponent, b_exponent) > 0u && max(a_exponent, b_exponent) < 255u;
  if (!is_normal || exponent <= 0 || exponent >= 254) { return a / b; }
  rest = (rest << shift) - divisor; // the leading bit of the quotient is 1
  let first = (rest << 8u) / divisor;
  rest = (rest << 8u) - first * divisor;
  let second = (rest << 8u) / divisor;
  rest = (rest << 8u) - second * divisor;
  let third = (rest << 7u) / divisor;
  rest = (rest << 7u) - third * divisor;
  let fraction = (first << 15u) | (second << 7u) | third;
  let is_up = 2u * rest > divisor || (2u * rest == divisor && (fraction & 1u) == 1u);
  let magnitude = (u32(exponent) << 23u) + fraction + select(0u, 1u, is_up);
  return bitcast<f32>(magnitude | ((a_bits ^ b_bits) & 0x80000000u));
}
