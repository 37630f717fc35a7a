// a / b, rounded to the nearest float as IEEE 754 requires: WGSL's division may be off by 2.5 units in the last
// place. The significands are divided approximately; the remainder, computed modulo 2^32, is small enough to be
// unambiguous and corrects the quotient. If a, b or the quotient is not a normal number, the result is WGSL's.
fn quotient(a: f32, b: f32) -> f32 {
  let a_bits = bitcast<u32>(a);
  let b_bits = bitcast<u32>(b);
  let a_exponent = (a_bits >> 23u) & 255u;
  let b_exponent = (b_bits >> 23u) & 255u;
  let divisor = (b_bits & 0x7fffffu) | 0x800000u;
  let dividend = (a_bits & 0x7fffffu) | 0x800000u;
  let shift = select(0u, 1u, dividend < divisor);
  let exponent = i32(a_exponent) - i32(b_exponent) + 127 - i32(shift);
  let is_normal = min(a_exponent, b_exponent) > 0u && max(a_exponent, b_exponent) < 255u;
  if (!is_normal || exponent <= 0 || exponent >= 254) { return a / b; }
  var units = u32(f32(dividend << shift) / f32(divisor) * 8388608.0); // the leading bit is 2^23
  var rest = i32((dividend << (23u + shift)) - units * divisor);
  //! unroll
  for (var i = 0u; i < 3u; i++) {
    let off = select(select(0, 1, rest >= i32(divisor)), -1, rest < 0);
    units += u32(off);
    rest -= off * i32(divisor);
  }
  let is_up = 2u * u32(rest) > divisor || (2u * u32(rest) == divisor && (units & 1u) == 1u);
  let magnitude = (u32(exponent) << 23u) + (units - 0x800000u) + select(0u, 1u, is_up);
  return bitcast<f32>(magnitude | ((a_bits ^ b_bits) & 0x80000000u));
}
