//! extent b_words: depth * PITCH
//! extent b_scales: (columns - 1) // GROUP * SCALES_PITCH + depth
// The second factor of a matrix product in 4-bit weights: b[k, n] = (nibble - 8) · scale[n / GROUP, k]. Rows of
// b are PITCH words apart; a word holds NIBBLES weights, the lowest nibble first.
import super::matmul::{params};

alias Q = u32;
alias S = f32;
override NIBBLES: u32 = 8u;
override PITCH: u32 = 8u;
override GROUP: u32 = 32u;
override SCALES_PITCH: u32 = 8u;

@group(0) @binding(1) var<storage, read> b_words: array<Q>;
@group(0) @binding(6) var<storage, read> b_scales: array<S>;

fn load_b(z: u32, k: u32, n: u32) -> f32 {
  let nibble = (b_words[k * PITCH + n / NIBBLES] >> (4u * (n % NIBBLES))) & 15u;
  return (f32(nibble) - 8.0) * f32(b_scales[n / GROUP * SCALES_PITCH + k]);
}
