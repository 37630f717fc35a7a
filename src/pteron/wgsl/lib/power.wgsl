import super::nan::{LOWEST, is_finite, is_nan, minus_infinity, nan};
import super::exponential::{exp_scaled};
//! loops: 31
// Powers of floats, to a unit in the last place or two, and of integers.

// x to the power y with the signs and limits of C's pow.
fn power(x: f32, y: f32) -> f32 {
  let most = -LOWEST;
  if (y == 0.0 || x == 1.0) { return 1.0; }
  if (is_nan(x) || is_nan(y)) { return nan(); }
  if (x == -1.0 && abs(y) > most) { return 1.0; }
  let magnitude = positive_power(abs(x), y);
  if (x > 0.0) { return magnitude; }
  let whole = floor(y) == y;
  let odd = whole && floor(y * 0.5) * 2.0 != y;
  if (x == 0.0) {
    let limit = select(0.0, 1.0 / abs(x), y < 0.0);
    return select(limit, -limit, odd && bitcast<u32>(x) != 0u); // a negative zero keeps its sign
  }
  if (!whole && x >= -most) { return nan(); }
  return select(magnitude, -magnitude, odd);
}

// The same for x from 0 on, as 2^(y log2(x)) with y log2(x) in two parts. Numbers are cut to 12 bits (`leading`)
// where their products must be exact.
fn positive_power(x: f32, y: f32) -> f32 {
  if (x == 0.0 || !is_finite(x)) { return select(0.0, -minus_infinity(), (x == 0.0) == (y < 0.0)); }
  let is_small = bitcast<u32>(x) < 0x800000u; // subnormal: its exponent is in its leading zeros
  let bits = bitcast<u32>(select(x, x * 8388608.0, is_small));
  // x = 2^e (1 + f), 1 + f from sqrt(1/2) to sqrt(2)
  let is_high = (bits & 0x7fffffu) > 0x3504f3u;
  let e = f32(i32(bits >> 23u) - 127 + i32(is_high)) - select(0.0, 23.0, is_small);
  let f = bitcast<f32>((bits & 0x7fffffu) | select(0x3f800000u, 0x3f000000u, is_high)) - 1.0;
  // log2(1 + f) = 2 / ln(2) (s + s^3 / 3 + s^5 / 5 + ..), s = f / (2 + f)
  let s = f / (2.0 + f);
  let s_high = leading(s);
  let f_high = leading(f);
  let s_low = (((f - 2.0 * s_high) - s_high * f_high) - s_high * (f - f_high)) / (2.0 + f);
  let z = s * s;
  let tail = s * z * ((((0.0909090909 * z + 0.1111111111) * z + 0.1428571429) * z + 0.2) * z + 0.3333333333);
  let first = 2.884765625 * s_high;
  let rest = 2.884765625 * s_low + (6.2445678e-4 * s + 2.885390082 * tail);
  let log = e + first + rest;
  if (abs(y * log) > 160.0) { return select(0.0, -minus_infinity(), y * log > 0.0); }
  let log_high = leading(log);
  let log_low = ((e - log_high) + first) + rest;
  let y_high = leading(y);
  let high = y_high * log_high;
  let low = (y - y_high) * log_high + y * log_low;
  let n = round(high + low);
  return exp_scaled(((high - n) + low) * 0.6931471805599453, i32(n));
}

fn leading(x: f32) -> f32 { return bitcast<f32>(bitcast<u32>(x) & 0xfffff000u); }

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
