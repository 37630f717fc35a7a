import super::nan::{is_nan};
// Exponentials to a unit in the last place: the error of WGSL's `exp` grows with x, to 180 units.

// e^x 2^n for x from -ln(2) / 2 to ln(2) / 2. The power is in two factors: one alone may be no f32.
fn exp_scaled(x: f32, n: i32) -> f32 {
  var p = 1.9789905e-4;
  p = p * x + 1.3945102e-3;
  p = p * x + 8.3334995e-3;
  p = p * x + 0.041666288;
  p = p * x + 0.16666666;
  p = p * x + 0.5;
  let half = n >> 1u;
  let value = 1.0 + (x + x * x * p);
  return value * bitcast<f32>(u32(half + 127) << 23u) * bitcast<f32>(u32(n - half + 127) << 23u);
}

fn exp_of(x: f32) -> f32 {
  if (is_nan(x)) { return x; }
  let near = clamp(x, -105.0, 90.0); // beyond are 0 and infinity
  let n = round(near * 1.4426950408889634);
  return exp_scaled((near - n * 0.693359375) + n * 2.1219444e-4, i32(n));
}

fn exp2_of(x: f32) -> f32 {
  if (is_nan(x)) { return x; }
  let near = clamp(x, -151.0, 129.0);
  let n = round(near);
  return exp_scaled((near - n) * 0.6931471805599453, i32(n));
}
