//! extent b: depth * PITCH
//! extent b_scales: (columns - 1) // GROUP * SCALES_PITCH + depth
// The second factor of a matrix product in 4-bit weights: b[k, n] = (nibble - 8) · scale[n / GROUP, k]. Rows of
// b are PITCH words apart; a word holds NIBBLES weights, the lowest nibble first.
alias B = u32;
alias S = f32;
const NIBBLES = 8u;
const PITCH = 8u;
const GROUP = 32u;
const SCALES_PITCH = 8u;

@group(0) @binding(1) var<storage, read> b: array<B>;
@group(0) @binding(6) var<storage, read> b_scales: array<S>;

fn load_b(z: u32, k: u32, n: u32) -> f32 {
  let nibble = (b[k * PITCH + n / NIBBLES] >> (4u * (n % NIBBLES))) & 15u;
  return (f32(nibble) - 8.0) * f32(b_scales[n / GROUP * SCALES_PITCH + k]);
}
