//! loops: 32
// Functions that WGSL lacks, or leaves open at the edges of their domain.
import super::nan::{is_finite, is_nan, nan};

// Bounds that preserve a NaN. Drivers may turn a plain comparison into min or max, which drop it.
fn at_least(x: f32, low: f32) -> f32 { return select(select(x, low, x < low), x, is_nan(x)); }
fn at_most(x: f32, high: f32) -> f32 { return select(select(x, high, x > high), x, is_nan(x)); }

// Hyperbolic tangent that does not overflow: beyond 15 it is 1 to the last bit.
fn tanh_safe(x: f32) -> f32 { return select(tanh(clamp(x, -15.0, 15.0)), x, is_nan(x)); }

// The error function: Abramowitz and Stegun 7.1.26 in Horner form, absolute error below 2e-7.
fn erf(x: f32) -> f32 {
  let z = abs(x);
  let t = 1.0 / (1.0 + 0.3275911 * z);
  let p = ((((1.061405429 * t - 1.453152027) * t + 1.421413741) * t - 0.284496736) * t + 0.254829592) * t;
  return select(sign(x) * (1.0 - p * exp(-z * z)), x, is_nan(x));
}

// The remainder of x / y with the sign of x, to the last bit, for numbers with y other than zero: a long
// division of the significands, eight bits at a time. 254 - 1 bits at most are left: 32 rounds.
fn remainder(x: f32, y: f32) -> f32 {
  let sign = bitcast<u32>(x) & 0x80000000u;
  let a = bitcast<u32>(x) & 0x7fffffffu;
  let b = bitcast<u32>(y) & 0x7fffffffu;
  if (a < b) { return x; }
  let exponent = max(b >> 23u, 1u); // of subnormal numbers too
  let divisor = significand_of(b);
  var rest = significand_of(a) % divisor;
  var left = max(a >> 23u, 1u) - exponent;
  while (left > 0u) {
    let bits = min(left, 8u);
    rest = (rest << bits) % divisor;
    left -= bits;
  }
  if (rest == 0u) { return bitcast<f32>(sign); }
  let shift = min(countLeadingZeros(rest) - 8u, exponent - 1u);
  rest <<= shift;
  let is_subnormal = rest < 0x800000u;
  return bitcast<f32>(sign | (rest & 0x7fffffu) | select((exponent - shift) << 23u, 0u, is_subnormal));
}

// The 24 bits whose product with a power of two is a number without its sign.
fn significand_of(bits: u32) -> u32 { return (bits & 0x7fffffu) | select(0x800000u, 0u, bits < 0x800000u); }

// C's fmod: the remainder of any x / y with the sign of x.
fn fmod(x: f32, y: f32) -> f32 {
  if (y == 0.0 || is_nan(y) || !is_finite(x)) { return nan(); }
  return remainder(x, y);
}

// Python's x % y, with the sign of y.
fn modulo(x: f32, y: f32) -> f32 {
  let rest = fmod(x, y);
  return select(rest, rest + y, rest != 0.0 && (y < 0.0) != (rest < 0.0));
}

// The largest whole number that is not above x / y, found from the remainder as PyTorch finds it: a quotient
// that rounds up to a whole number does not count as one, and that of an infinity is NaN.
fn floor_quotient(x: f32, y: f32) -> f32 {
  if (y == 0.0) { return x / y; }
  if (is_nan(y) || !is_finite(x)) { return nan(); }
  let rest = remainder(x, y);
  var quotient = (x - rest) / y;
  if (rest != 0.0 && (y < 0.0) != (rest < 0.0)) { quotient -= 1.0; }
  if (quotient == 0.0) { return bitcast<f32>((bitcast<u32>(x) ^ bitcast<u32>(y)) & 0x80000000u); }
  let below = floor(quotient);
  return select(below, below + 1.0, quotient - below > 0.5);
}
