// The angles by which rotations rotate the pairs of a head. Kernels declare the tables, and `params.rotary`: the
// elements of a head that are rotated.
const HALVED = false; // pairs are (j, j + rotary/2) where true, (2j, 2j + 1) where not

// Cosine and sine of a pair, for its first and for its second element, in the tables from `base` on.
fn first_angle(base: u32, pair: u32) -> vec2<f32> {
  return vec2(f32(cosines[base + pair]), f32(sines[base + pair]));
}
fn second_angle(base: u32, pair: u32) -> vec2<f32> { return first_angle(base, pair); }
