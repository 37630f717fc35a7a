//! extent x: 4 * ceil(rows, SHARE) * QUADS
//! extent scales: MATRICES * columns * GROUPS
//! extent minima: MATRICES * columns * GROUPS
//! extent x_zeros: rows
// Products with weights of few bits: out[m, n] = Σ x[m, k] · w[n, k] · scale[n, k / group] + added(n). If groups have
// minima, weights are w · scale + minimum.
//
// x is [m][k], w is [n][k]. A word holds eight weights (lib/words.wgsl, lib/words8.wgsl). Rows of w are PITCH words apart and
// are WORDS long, enough to cover x; rows of x are QUADS vec4s long; GROUP words share a scale; scales are [n][group]; an
// invocation takes PART words. Row lengths are known when a kernel is compiled, so that its loops unroll. lib/q4_result.wgsl
// finishes the sums.
import super::q4_params::{params};
import super::q4_result::{X, PARTS, OTHERS, x_scales, store, store_quad, store_gated, store_gated_pair};
@if(IN_BYTES) import super::words8::{Word, load_word, unpack};
@elif(IN_FOURS) import super::words_wide::{load_words, unpack_words};
@else import super::words::{Word, load_word, unpack};
import super::experts::{MATRICES, SHARE, first_row, x_row};
import super::int8_steps::{int8_steps};

alias Z = i32;
override WORDS: u32 = 8u; // of a row of w
override PITCH: u32 = 8u; // words from one row to the next
override QUADS: u32 = 16u; // vec4s of a row of x
override GROUP: u32 = 4u; // words that share a scale
const GROUPS = (WORDS + GROUP - 1u) / GROUP;
override PART: u32 = 8u; // words of one of PARTS parts of a row
override IN_BYTES: bool = false; // whether weights have eight bits
override IN_FOURS: bool = false; // whether rows and groups are multiples of four words, loaded at once

@group(0) @binding(0) var<storage, read> x: array<vec4<X>>;
@group(0) @binding(2) var<storage, read> scales: array<f32>;
@group(0) @binding(5) var<storage, read> x_zeros: array<Z>;
@group(0) @binding(29) var<storage, read> minima: array<f32>; // [n][group]

// The minimum of the group of a word.
fn minimum(n: u32, word: u32) -> f32 {
  @if(minima) return minima[n * GROUPS + word / GROUP];
  @else return 0.0;
}

// Four weights of a word with the scale and the minimum of its group.
fn scaled(weights: vec4<f32>, scale: f32, least: f32) -> vec4<f32> {
  @if(minima) return weights * scale + least;
  @else return weights * scale;
}

// Activations as they are multiplied: rounded to int8 steps, less the zero point, if they have scales.
fn activation(m: u32, value: vec4<f32>) -> vec4<f32> {
  @if(x_zeros) return int8_steps(value, f32(x_scales[m]), f32(x_zeros[m])) - f32(x_zeros[m]);
  @else return value;
}

// Four elements of x; zeros past its end, where weights are padding.
fn load(m: u32, quad: u32) -> vec4<f32> {
  if (QUADS == 2u * WORDS) { return activation(m, vec4<f32>(x[x_row(m) * QUADS + quad])); }
  let value = activation(m, vec4<f32>(x[x_row(m) * QUADS + min(quad, QUADS - 1u)]));
  return select(vec4(0.0), value, quad < QUADS);
}
