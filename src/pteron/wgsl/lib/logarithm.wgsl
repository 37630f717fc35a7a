import super::nan::{is_finite, is_nan, minus_infinity, nan};
// Logarithms to a unit in the last place or two, near one and of subnormal numbers too: the `log` of WGSL has an
// absolute error of 2^-21 near one.

// log(1 + x) for x from sqrt(1/2) - 1 to sqrt(2) - 1.
fn log_near_one(x: f32) -> f32 {
  var p = -0.062015001;
  p = p * x + 0.10530864;
  p = p * x - 0.10646192;
  p = p * x + 0.11037783;
  p = p * x - 0.12450743;
  p = p * x + 0.14286524;
  p = p * x - 0.16668001;
  p = p * x + 0.20000011;
  p = p * x - 0.24999990;
  p = p * x + 0.33333334;
  return x + x * x * (x * p - 0.5);
}

// The exponent e and log(m) with x = 2^e m, m from sqrt(1/2) to sqrt(2), for x positive and finite.
fn log_parts(x: f32) -> vec2<f32> {
  let is_small = bitcast<u32>(x) < 0x800000u; // subnormal: its exponent is in its leading zeros
  let bits = bitcast<u32>(select(x, x * 8388608.0, is_small));
  var exponent = f32(i32(bits >> 23u) - 127) - select(0.0, 23.0, is_small);
  var significand = bitcast<f32>((bits & 0x7fffffu) | 0x3f800000u); // from 1 to 2
  if (significand > 1.4142135) {
    significand *= 0.5;
    exponent += 1.0;
  }
  return vec2(exponent, log_near_one(significand - 1.0));
}

// The logarithm of x, from that of `log_parts`, where these have one.
fn log_at_edges(x: f32, inside: f32) -> f32 {
  if (is_nan(x) || x < 0.0) { return nan(); }
  if (x == 0.0) { return minus_infinity(); }
  return select(x, inside, is_finite(x));
}

// The logarithm of 2 is in two parts, the first of few bits, so that its products with exponents are exact.
fn log_of(x: f32) -> f32 {
  let parts = log_parts(x);
  return log_at_edges(x, parts.x * 0.693359375 + (parts.y - parts.x * 2.1219444e-4));
}
fn log2_of(x: f32) -> f32 {
  let parts = log_parts(x);
  return log_at_edges(x, parts.x + parts.y * 1.4426950408889634);
}
fn log10_of(x: f32) -> f32 {
  let parts = log_parts(x);
  return log_at_edges(x, parts.x * 0.301025390625 + (parts.y * 0.4342944819032518 + parts.x * 4.605039e-6));
}

fn log1p_of(x: f32) -> f32 {
  if (x > -0.29289 && x < 0.41421) { return log_near_one(x); }
  return log_of(1.0 + x);
}
