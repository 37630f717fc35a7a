// Rotates the pairs of a head by their angles. Kernels declare in Params `rotary`, the elements of a head that are rotated;
// `start`, the tables' row of the first step; `steps`; `angle_strides`, of (step, head), in elements of the tables.
import super::angles::{HALVED, first_angle, second_angle};

// The two elements of a pair; for an element that is not rotated, its index twice.
fn places_of(pair: u32) -> vec2<u32> {
  let pairs = params.rotary / 2u;
  if (pair >= pairs) { return vec2(pair + pairs); }
  return select(vec2(2u * pair, 2u * pair + 1u), vec2(pair, pair + pairs), HALVED);
}

// The products are rounded as q4_digits.wgsl rounds them, so that results do not depend on the kernel that rotates.
fn rotate(x: vec2<f32>, row: u32, head: u32, pair: u32) -> vec2<f32> {
  if (pair >= params.rotary / 2u) { return x; }
  let step = u32(params.start) + row % params.steps;
  let base = dot(vec2(step, head), params.angle_strides);
  let a = first_angle(base, pair);
  let b = second_angle(base, pair);
  return vec2(fma(x.x, a.x, -(x.y * a.y)), fma(x.y, b.x, x.x * b.y));
}
