//! use q4_sizes
//! use q4_result
//! use one_matrix
//! use words
//! use int8_steps
//! extent x: 4 * ceil(rows, SHARE) * QUADS
//! extent scales: MATRICES * columns * GROUPS
//! extent minima: MATRICES * columns * GROUPS
//! extent x_zeros: rows
// Products with weights of few bits: out[m, n] = Σ x[m, k] · w[n, k] · scale[n, k / group] + added(n). If groups have
// minima, weights are w · scale + minimum.
//
// A word holds eight weights (lib/words.wgsl, lib/words8.wgsl). Rows of w are PITCH words apart and are WORDS
// long, enough to cover x; rows of x are QUADS vec4s long; GROUP words share a scale; scales are [n][group]; an
// invocation takes PART words. Row lengths are known when a kernel is compiled, so that its loops unroll.
alias Z = i32;
const WORDS = 8u;
const PITCH = 8u;
const QUADS = 16u;
const GROUP = 4u;
const GROUPS = (WORDS + GROUP - 1u) / GROUP;
const PART = 8u;
const HAS_MINIMA = false;

@group(0) @binding(0) var<storage, read> x: array<vec4<X>>;
@group(0) @binding(2) var<storage, read> scales: array<f32>;
@group(0) @binding(5) var<storage, read> x_zeros: array<Z>;
@group(0) @binding(29) var<storage, read> minima: array<f32>; // [n][group]

// The minimum of the group of a word.
fn minimum(n: u32, word: u32) -> f32 { return 0.0; }

// Four weights of a word with the scale and the minimum of its group.
fn scaled(weights: vec4<f32>, scale: f32, least: f32) -> vec4<f32> {
  if (HAS_MINIMA) { return weights * scale + least; }
  return weights * scale;
}

// Quantises activations before the product; by default x stays.
fn activation(m: u32, value: vec4<f32>) -> vec4<f32> { return value; }

// Four elements of x; zeros past its end, where weights are padding.
fn load(m: u32, quad: u32) -> vec4<f32> {
  if (QUADS == 2u * WORDS) { return activation(m, vec4<f32>(x[x_row(m) * QUADS + quad])); }
  let value = activation(m, vec4<f32>(x[x_row(m) * QUADS + min(quad, QUADS - 1u)]));
  return select(vec4(0.0), value, quad < QUADS);
}
