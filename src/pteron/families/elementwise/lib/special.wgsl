// Functions whose WGSL namesakes are too coarse, or missing. Each is within a few units in the last place: a
// polynomial near zero, and an identity elsewhere.
import package::wgsl::lib::exponential::{exp_of};
import package::wgsl::lib::logarithm::{log1p_of, log_of};
import package::wgsl::lib::nan::{LOWEST, is_finite, is_nan, minus_infinity, nan};

const LN_2 = 0.6931471805599453;
const HALF_PI = 1.5707963267948966;

fn infinity() -> f32 { return -minus_infinity(); }

fn expm1_of(x: f32) -> f32 {
  if (abs(x) > 0.5) { return exp_of(x) - 1.0; }
  let p = ((((2.4905148e-5 * x + 1.9944874e-4) * x + 1.3888791e-3) * x + 8.3332360e-3) * x + 0.041666668) * x;
  return x + x * x * (x * (p + 0.16666667) + 0.5);
}

fn sinh_of(x: f32) -> f32 {
  let z = x * x;
  if (abs(x) > 1.0) {
    let half = exp_of(0.5 * abs(x)); // its square would overflow too early
    return select(0.5, -0.5, x < 0.0) * half * half - 0.5 * select(1.0, -1.0, x < 0.0) / (half * half);
  }
  return x + x * z * (((2.8062852e-6 * z + 1.9838101e-4) * z + 8.3333394e-3) * z + 0.16666667);
}

fn cosh_of(x: f32) -> f32 {
  let half = exp_of(0.5 * abs(x));
  return 0.5 * half * half + 0.5 / (half * half);
}

// atan for x from 0 to tan(pi / 8).
fn atan_small(x: f32) -> f32 {
  let z = x * x;
  let p = (((-0.064519152 * z + 0.10743727) * z - 0.14263955) * z + 0.19999540) * z - 0.33333331;
  return x + x * z * p;
}

fn atan_of(x: f32) -> f32 {
  let a = abs(x);
  var angle = 0.0;
  if (is_nan(x)) { return x; }
  if (a > 2.4142136) {
    angle = HALF_PI - atan_small(1.0 / a);
  } else if (a > 0.41421356) {
    angle = 0.78539816 + select(atan_small(abs((a - 1.0) / (a + 1.0))), -atan_small((1.0 - a) / (a + 1.0)), a < 1.0);
  } else {
    return select(atan_small(a), -atan_small(a), x < 0.0);
  }
  return select(angle, -angle, x < 0.0);
}

// The angle of the point (x, y), with the signs of zeros and the limits of C's atan2.
fn atan2_of(y: f32, x: f32) -> f32 {
  if (is_nan(x) || is_nan(y)) { return nan(); }
  let is_below = (bitcast<u32>(y) >> 31u) == 1u;
  let is_left = (bitcast<u32>(x) >> 31u) == 1u;
  let far = max(abs(x), abs(y));
  let near = min(abs(x), abs(y));
  // Both infinite, or both zero: as if the two were equal, or x were not zero.
  var ratio = select(near / far, 0.0, far == 0.0);
  if (!is_finite(far)) { ratio = select(0.0, 1.0, !is_finite(near)); }
  var angle = atan_of(ratio);
  if (abs(y) > abs(x)) { angle = HALF_PI - angle; }
  if (is_left) { angle = 3.1415927 - angle; }
  return select(angle, -angle, is_below);
}

// asin for x from 0 to 1/2.
fn asin_small(x: f32) -> f32 {
  let z = x * x;
  let p = ((((0.033690933 * z + 0.017149178) * z + 0.031100677) * z + 0.044599399) * z + 0.075000949) * z;
  return x + x * z * (p + 0.16666666);
}

fn asin_of(x: f32) -> f32 {
  let a = abs(x);
  if (!(a <= 1.0)) { return nan(); }
  if (a <= 0.5) { return select(asin_small(a), -asin_small(a), x < 0.0); }
  let angle = HALF_PI - 2.0 * asin_small(sqrt(0.5 - 0.5 * a));
  return select(angle, -angle, x < 0.0);
}

fn acos_of(x: f32) -> f32 {
  if (!(abs(x) <= 1.0)) { return nan(); }
  if (x > 0.5) { return 2.0 * asin_small(sqrt(0.5 - 0.5 * x)); }
  if (x < -0.5) { return 3.1415927 - 2.0 * asin_small(sqrt(0.5 + 0.5 * x)); }
  return HALF_PI - asin_of(x);
}

fn asinh_of(x: f32) -> f32 {
  let a = abs(x);
  if (is_nan(x)) { return x; }
  var value = 0.0;
  if (a > 1e9) { value = log_of(a) + LN_2; } else { value = log1p_of(a + a * a / (1.0 + sqrt(1.0 + a * a))); }
  return select(value, -value, x < 0.0);
}

fn acosh_of(x: f32) -> f32 {
  if (!(x >= 1.0)) { return nan(); }
  if (x > 1e9) { return log_of(x) + LN_2; }
  let above = x - 1.0;
  return log1p_of(above + sqrt(2.0 * above + above * above));
}

fn atanh_of(x: f32) -> f32 {
  let a = abs(x);
  if (!(a <= 1.0)) { return nan(); }
  if (a == 1.0) { return select(infinity(), minus_infinity(), x < 0.0); }
  let value = 0.5 * log1p_of(2.0 * a / (1.0 - a));
  return select(value, -value, x < 0.0);
}

// The error function: relative error below 2e-7 near zero, absolute error below 2e-7 elsewhere
// (Abramowitz and Stegun 7.1.26).
fn erf_of(x: f32) -> f32 {
  let a = abs(x);
  if (is_nan(x)) { return x; }
  if (a <= 1.0) {
    let z = x * x;
    var p = -9.6670437e-6;
    p = p * z + 1.1265959e-4;
    p = p * z - 8.4840803e-4;
    p = p * z + 5.2210316e-3;
    p = p * z - 0.026865430;
    p = p * z + 0.11283782;
    p = p * z - 0.37612638;
    return x * (p * z + 1.1283792);
  }
  let t = 1.0 / (1.0 + 0.3275911 * a);
  let p = ((((1.061405429 * t - 1.453152027) * t + 1.421413741) * t - 0.284496736) * t + 0.254829592) * t;
  let value = 1.0 - p * exp_of(-a * a);
  return select(value, -value, x < 0.0);
}

// 1 - erf(x), with a relative error below 2e-7 before rounding where it is small (a Chebyshev fit).
fn erfc_of(x: f32) -> f32 {
  if (is_nan(x)) { return x; }
  let a = abs(x);
  if (a > 10.5) { return select(0.0, 2.0, x < 0.0); }
  let t = 1.0 / (1.0 + 0.5 * a);
  var p = 0.17087277;
  p = p * t - 0.82215223;
  p = p * t + 1.48851587;
  p = p * t - 1.13520398;
  p = p * t + 0.27886807;
  p = p * t - 0.18628806;
  p = p * t + 0.09678418;
  p = p * t + 0.37409196;
  p = p * t + 1.00002368;
  // a² in two parts, the first exact: a rounding of 100 would be 60 units in the last place of the result.
  let high = bitcast<f32>(bitcast<u32>(a) & 0xfffff000u);
  let value = t * exp_of(-high * high) * exp_of((high - a) * (high + a) - 1.26551223 + p * t);
  return select(value, 2.0 - value, x < 0.0);
}

// The inverse of the error function (M. Giles, "Approximating the erfinv function").
fn erfinv_of(x: f32) -> f32 {
  if (!(abs(x) <= 1.0)) { return nan(); }
  if (abs(x) == 1.0) { return select(infinity(), minus_infinity(), x < 0.0); }
  let w = -(log1p_of(-abs(x)) + log1p_of(abs(x)));
  var p = 0.0;
  if (w < 5.0) {
    let v = w - 2.5;
    p = 2.81022636e-08;
    p = p * v + 3.43273939e-07;
    p = p * v - 3.5233877e-06;
    p = p * v - 4.39150654e-06;
    p = p * v + 0.00021858087;
    p = p * v - 0.00125372503;
    p = p * v - 0.00417768164;
    p = p * v + 0.246640727;
    p = p * v + 1.50140941;
  } else {
    let v = sqrt(w) - 3.0;
    p = -0.000200214257;
    p = p * v + 0.000100950558;
    p = p * v + 0.00134934322;
    p = p * v - 0.00367342844;
    p = p * v + 0.00573950773;
    p = p * v - 0.0076224613;
    p = p * v + 0.00943887047;
    p = p * v + 1.00167406;
    p = p * v + 2.83297682;
  }
  return p * x;
}

// sqrt(x² + y²) without overflow.
fn hypot_of(x: f32, y: f32) -> f32 {
  let far = max(abs(x), abs(y));
  let near = min(abs(x), abs(y));
  if (abs(x) > -LOWEST || abs(y) > -LOWEST) { return infinity(); }
  if (is_nan(x) || is_nan(y)) { return nan(); }
  let ratio = select(near / far, 0.0, far == 0.0);
  return far * sqrt(1.0 + ratio * ratio);
}
