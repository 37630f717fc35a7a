//! use matrix_cores
// Tiles of products by matrices: a workgroup of DOWN × ACROSS subgroups computes HEIGHT rows by WIDTH columns. A subgroup
// has TALL × WIDE matrices of 16 × 16 sums. In workgroup memory, factors are halves: x in X_PLANES planes and weights in
// W_PLANES. With two planes, a number is the sum of its high half and its low one, which have 22 bits together; the
// product of two low halves is left out.
const TALL = 4u;
const WIDE = 4u;
const DOWN = 2u;
const ACROSS = 2u;
const SUBGROUPS = DOWN * ACROSS;
const WORKGROUP = 32u * SUBGROUPS;
const HEIGHT = 16u * TALL * DOWN;
const WIDTH = 16u * WIDE * ACROSS;
const IS_HALVED = true;
const MATRICES_OF_SUMS = TALL * WIDE;
const STRIP_QUADS = 4u * WIDE; // quads of columns of a subgroup
const X_PLANES = 2u;
const W_PLANES = 2u;
const IS_ALONG = true; // the right factor is stored along k
const X_PLANE = HEIGHT * K_PITCH; // halves
const W_PLANE = WIDTH * K_PITCH; // or k per step · N_PITCH
const W_START = X_PLANES * X_PLANE;

// Weights are small numbers: multiplied by SCALE, their low halves are not rounded to zero. Sums are divided by it.
const SCALE = 1024.0;

// Halves hold numbers below 65,504, and those below 2^-14 with fewer bits. A tile whose largest factors are not between
// these limits is computed again, from floats.
const IS_CHECKED = true;
const LARGEST = 65504.0;
const SMALLEST = 0.0078125;

struct Seen {
  x: vec4<f32>, // the largest magnitudes
  w: vec4<f32>,
}

fn put_split(at: u32, plane: u32, planes: u32, value: vec4<f32>) {
  if (planes == 1u) {
    put_halves(at, value);
    return;
  }
  // By bits: drivers may simplify value - f32(f16(value)) to zero.
  let high = bitcast<vec4<f32>>(bitcast<vec4<u32>>(value) & vec4(0xffffe000u));
  put_halves(at, high);
  put_halves(at + plane, value - high);
}

// Four k of a row of x.
fn put_left(row: u32, k: u32, value: vec4<f32>) { put_split(row * K_PITCH + k, X_PLANE, X_PLANES, value); }

// Four k of a column of weights.
fn put_right(column: u32, k: u32, value: vec4<f32>) {
  put_split(W_START + column * K_PITCH + k, W_PLANE, W_PLANES, value);
}

// One k of four columns.
fn put_right_across(column: u32, k: u32, value: vec4<f32>) {
  put_split(W_START + k * N_PITCH + column, W_PLANE, W_PLANES, value);
}

// A matrix of the rows of a subgroup, from k on.
fn left_of(subgroup: u32, plane: u32, k: u32, m: u32) -> Left {
  return left_at(plane * X_PLANE + (subgroup % DOWN * TALL + m) * 16u * K_PITCH + k);
}

fn right_of(subgroup: u32, plane: u32, k: u32, n: u32) -> Right {
  let column = (subgroup / DOWN * WIDE + n) * 16u;
  if (IS_ALONG) { return right_at(W_START + plane * W_PLANE + column * K_PITCH + k); }
  return right_across_at(W_START + plane * W_PLANE + k * N_PITCH + column);
}

fn begin_tile(local: u32) {
  begin_matrices(local);
  if (local < 3u) { put_word(local, 0u); }
}

fn largest(value: vec4<f32>) -> f32 { return max(max(value.x, value.y), max(value.z, value.w)); }

// Whether halves hold the factors that the workgroup has seen: word 0 is 1 if one is too large; words 1 and 2, for x and
// for weights, are 1 if one is not zero and 2 if one is large enough.
fn is_in_range(seen: Seen) -> bool {
  if (!IS_CHECKED) { return true; }
  let x = largest(seen.x);
  let w = largest(seen.w);
  // Invocations may store at once: they store the same value.
  if (!(x < LARGEST && w < LARGEST)) { put_word(0u, 1u); }
  if (x > 0.0) { put_word(1u, 1u); }
  if (w > 0.0) { put_word(2u, 1u); }
  workgroupBarrier();
  if (x >= SMALLEST) { put_word(1u, 2u); }
  if (w >= SMALLEST) { put_word(2u, 2u); }
  workgroupBarrier();
  return word_at(0u) == 0u && word_at(1u) != 1u && word_at(2u) != 1u;
}

// Where an invocation reads quad `i` of a strip of all subgroups: a strip has the sums of 16 rows of each.
struct StripQuad {
  subgroup: u32,
  row: u32, // of the 16
  quad: u32, // of the STRIP_QUADS
}

const STRIP_LOADS = 16u * STRIP_QUADS / 32u; // quads per invocation

fn strip_quad(local: u32, i: u32) -> StripQuad {
  let at = local + i * WORKGROUP;
  return StripQuad(at / (16u * STRIP_QUADS), at / STRIP_QUADS % 16u, at % STRIP_QUADS);
}

fn strip_sums(at: StripQuad) -> vec4<f32> {
  let matrix = at.subgroup * WIDE + at.quad / 4u;
  return sums_at(256u * matrix + 16u * at.row + 4u * (at.quad % 4u)) / SCALE;
}

// Row and column in the tile, for strip m.
fn strip_row(at: StripQuad, m: u32) -> u32 { return (at.subgroup % DOWN * TALL + m) * 16u + at.row; }
fn strip_column(at: StripQuad) -> u32 { return at.subgroup / DOWN * WIDE * 16u + at.quad * 4u; }
