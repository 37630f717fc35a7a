//! use nan
//! loops: 31 + 36
// Functions that WGSL lacks, or leaves open at the edges of their domain.

// Bounds that let a NaN pass. Drivers may turn a plain comparison into min or max, which drop it.
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

// x to the power y with the signs and limits of C's pow.
fn power(x: f32, y: f32) -> f32 {
  let most = 3.4028234e38;
  if (y == 0.0 || x == 1.0) { return 1.0; }
  if (is_nan(x) || is_nan(y)) { return nan(); }
  if (x == -1.0 && abs(y) > most) { return 1.0; }
  let magnitude = pow(abs(x), y);
  if (x > 0.0) { return magnitude; }
  let whole = floor(y) == y;
  if (x == 0.0) { return select(0.0, 1.0 / abs(x), y < 0.0); }
  if (!whole && x >= -most) { return nan(); }
  let odd = whole && floor(y * 0.5) * 2.0 != y;
  return select(magnitude, -magnitude, odd);
}

// The same for integers, by squaring: exact, and wrapping round where 32 bits are too few.
fn integer_power(x: i32, y: i32) -> i32 {
  if (y < 0) { return select(0, select(1, x, (y & 1) == 1), abs(x) == 1); }
  var result = 1;
  var square = x;
  for (var rest = y; rest > 0; rest >>= 1u) {
    if ((rest & 1) == 1) { result *= square; }
    square *= square;
  }
  return result;
}
