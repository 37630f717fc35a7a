//! loops: 11
// Sine, cosine and tangent of every number, to a unit in the last place or two: the namesakes of WGSL have an
// absolute error of 2^-11, and none is stated beyond pi.
import package::wgsl::lib::nan::{is_finite, nan};

// x = quarters pi/2 + rest, rest from -pi / 4 to pi / 4.
struct Turned { quarters: i32, rest: f32 }

fn turned(x: f32) -> Turned {
  if (!is_finite(x)) { return Turned(0, nan()); }
  if (abs(x) > 3000.0) { return far_turned(x); }
  let quarters = round(x * 0.6366197723675814); // at most 11 bits
  // pi / 2 in four parts, the first three of at most 12 bits
  let rest = ((x - quarters * 1.5703125) - quarters * 4.8375129699707031e-4) - quarters * 7.5495336e-8;
  return Turned(i32(quarters), rest - quarters * 2.563344e-12);
}

// The same for any |x| from 2^-8 on (Payne and Hanek): x = m 2^e is a whole m times 2^e / (2 pi) turns, of which
// only the bits of the fraction count. They are multiplied byte by byte, from the last that matters.
fn far_turned(x: f32) -> Turned {
  // 32 zeros, and the bits of 1 / (2 pi)
  var bits = array(
    0u, 0x28be60dbu, 0x9391054au, 0x7f09d5f4u, 0x7d4d3770u, 0x36d8a566u, 0x4f10e410u, 0x7f9458eau,
  );
  let m = (bitcast<u32>(x) & 0x7fffffu) | 0x800000u;
  let first = ((bitcast<u32>(x) >> 23u) & 255u) - 118u; // the bit at which 2^e / (2 pi) has its point
  var high = 0u; // the fraction of a turn, in 64 bits
  var low = 0u;
  var product = 0u;
  for (var byte = 11u; byte > 0u; byte--) {
    let bit = first + 8u * (byte - 1u);
    let window = (bits[bit >> 5u] << (bit & 31u)) | ((bits[(bit >> 5u) + 1u] >> 1u) >> (31u - (bit & 31u)));
    product = m * (window >> 24u) + (product >> 8u);
    low = (low >> 8u) | (high << 24u);
    high = (high >> 8u) | (product << 24u);
  }
  let quarters = (high + 0x20000000u) >> 30u;
  let rest = f32(i32(high - (quarters << 30u))) + f32(low) * 2.3283064365386963e-10; // of 2^32 for a turn
  let angle = rest * 1.4629180792671596e-9;
  return Turned(select(i32(quarters), -i32(quarters), x < 0.0), select(angle, -angle, x < 0.0));
}

fn sin_turned(x: Turned) -> f32 {
  let r = x.rest;
  let z = r * r;
  let sine = r + r * z * ((-1.9516656e-4 * z + 8.3321733e-3) * z - 0.16666655);
  let cosine = (1.0 - 0.5 * z) + z * z * ((2.4432413e-5 * z - 1.3887309e-3) * z + 0.041666646);
  let value = select(sine, cosine, (x.quarters & 1) != 0);
  return select(value, -value, (x.quarters & 2) != 0);
}

fn sin_of(x: f32) -> f32 { return sin_turned(turned(x)); }

fn cos_of(x: f32) -> f32 {
  let found = turned(x);
  return sin_turned(Turned(found.quarters + 1, found.rest));
}

// tan for x from -pi / 4 to pi / 4.
fn tan_small(x: f32) -> f32 {
  let z = x * x;
  var p = 0.00938540185543;
  p = p * z + 0.00311992232697;
  p = p * z + 0.0244301354525;
  p = p * z + 0.0534112807005;
  p = p * z + 0.133387994085;
  p = p * z + 0.333331568548;
  return fma(p * z, x, x);
}

fn tan_of(x: f32) -> f32 {
  let found = turned(x);
  let small = tan_small(found.rest);
  return select(small, -1.0 / small, (found.quarters & 1) != 0);
}
