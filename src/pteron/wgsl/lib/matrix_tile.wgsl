// Tiles of products by matrices: a workgroup of DOWN × ACROSS subgroups computes HEIGHT rows by WIDTH columns. A subgroup
// has TALL × WIDE matrices of 16 × 16 sums. In workgroup memory, factors are halves: x in X_PLANES planes and weights in
// W_PLANES. With two planes, a number is its high half plus its low one / LOW_SCALE, which have 22 bits together; the
// product of two low halves is left out. Matrix cores round sums towards zero whenever they add, so products with low
// halves have sums of their own: a second plane, added at the end. Left, Right, begin_matrices and what loads and stores
// matrices, sums and words (left_at, right_at, right_across_at, sums_at, put_word, word_at) are those of lib/matrix_cores.wgsl
// or lib/matrix_emulated.wgsl.
import super::matrix_halves::{LARGEST, SMALLEST, put_split};

override TALL: u32 = 4u;
override WIDE: u32 = 4u;
override DOWN: u32 = 2u;
override ACROSS: u32 = 2u;
const SUBGROUPS = DOWN * ACROSS;
const WORKGROUP = 32u * SUBGROUPS;
const HEIGHT = 16u * TALL * DOWN;
const WIDTH = 16u * WIDE * ACROSS;
const IS_HALVED = true; // gates are the first half of a tile's columns
override SUM_PLANES: u32 = 2u; // 1 if low halves are added to the sums of high ones
const MATRICES_OF_SUMS = TALL * WIDE; // of one plane
const SUM_COUNT = SUM_PLANES * MATRICES_OF_SUMS;
const FIRST_LOW = SUM_COUNT - MATRICES_OF_SUMS;
override X_PLANES: u32 = 2u;
override W_PLANES: u32 = 2u;
override K_PITCH: u32 = 40u; // halves, a multiple of eight
override N_PITCH: u32 = 136u;
override IS_ALONG: bool = true; // the right factor is stored along k
const X_PLANE = HEIGHT * K_PITCH; // halves
override W_PLANE: u32 = WIDTH * K_PITCH; // or k per step · N_PITCH
const W_START = X_PLANES * X_PLANE;

// Weights are small numbers: multiplied by SCALE, their low halves are not rounded to zero. Sums are divided by it.
override SCALE: f32 = 1024.0;

// Halves hold numbers below LARGEST, and those below 2^-14 with fewer bits. Products of rows and columns whose largest
// numbers are not between these limits are computed from floats.
override IS_CHECKED: bool = true;
const DENORMAL = 1.17549435e-38; // smaller numbers are zero

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
  return left_at(plane * X_PLANE + (subgroup % DOWN * TALL + m) * 16u * K_PITCH + k, K_PITCH);
}

fn right_of(subgroup: u32, plane: u32, k: u32, n: u32) -> Right {
  let column = (subgroup / DOWN * WIDE + n) * 16u;
  if (IS_ALONG) { return right_at(W_START + plane * W_PLANE + column * K_PITCH + k, K_PITCH); }
  return right_across_at(W_START + plane * W_PLANE + k * N_PITCH + column, N_PITCH);
}

// A range flag for every row and column: 0 if its numbers are zero, 2 if halves hold them, 1 if they are too small and 3
// if they are too large. A last flag is 1 if there are rows or columns that halves do not hold.
const FLAGS = HEIGHT + WIDTH;

fn begin_tile(local: u32) {
  begin_matrices(local);
  for (var i = local; i <= FLAGS; i += WORKGROUP) { put_word(i, 0u); }
}

// Raises the flag of a row or column to `level` if `magnitude` reaches it. Callers have a barrier between levels:
// invocations that write at the same time write the same value.
fn raise_flag(place: u32, magnitude: f32, level: u32) {
  let limit = select(select(DENORMAL, SMALLEST, level == 2u), LARGEST, level == 3u);
  if (magnitude >= limit) { put_word(place, level); }
}

// Whether halves hold all rows and columns.
fn are_in_range(local: u32) -> bool {
  for (var i = local; i < FLAGS; i += WORKGROUP) {
    if (word_at(i) % 2u == 1u) { put_word(FLAGS, 1u); }
  }
  workgroupBarrier();
  return word_at(FLAGS) == 0u;
}

// Whether halves hold a row and four columns.
fn is_in_range(row: u32, column: u32) -> bool {
  var flags = word_at(row);
  //! unroll
  for (var e = 0u; e < 4u; e++) { flags |= word_at(HEIGHT + column + e) & 1u; }
  return flags % 2u == 0u;
}

// A strip has 16 rows by 16 · STRIP_WIDE columns of every subgroup: as many sums as workgroup memory takes at once.
const STRIP_WIDE = (WIDE + SUM_PLANES - 1u) / SUM_PLANES;
const STRIPS_ACROSS = WIDE / STRIP_WIDE;
const STRIPS = TALL * STRIPS_ACROSS;
const STRIP_QUADS = 4u * STRIP_WIDE; // quads of columns of a subgroup
const STRIP_LOADS = 16u * STRIP_QUADS / 32u; // quads per invocation

// Where an invocation reads quad `i` of a strip of all subgroups.
struct StripQuad {
  subgroup: u32,
  row: u32, // of the 16
  quad: u32, // of the STRIP_QUADS
}

fn strip_quad(local: u32, i: u32) -> StripQuad {
  let at = local + i * WORKGROUP;
  return StripQuad(at / (16u * STRIP_QUADS), at / STRIP_QUADS % 16u, at % STRIP_QUADS);
}

// Where a subgroup's sums of matrix n of a strip are.
fn strip_matrix(subgroup: u32, plane: u32, n: u32) -> u32 {
  return 256u * ((subgroup * SUM_PLANES + plane) * STRIP_WIDE + n);
}

fn strip_sums(at: StripQuad) -> vec4<f32> {
  let place = 16u * at.row + 4u * (at.quad % 4u);
  var sums = sums_at(strip_matrix(at.subgroup, 0u, at.quad / 4u) + place);
  if (SUM_PLANES == 2u) { sums += sums_at(strip_matrix(at.subgroup, 1u, at.quad / 4u) + place) / LOW_SCALE; }
  return sums / SCALE;
}

// Row and column in the tile.
fn strip_row(at: StripQuad, strip: u32) -> u32 {
  return (at.subgroup % DOWN * TALL + strip / STRIPS_ACROSS) * 16u + at.row;
}

fn strip_column(at: StripQuad, strip: u32) -> u32 {
  return (at.subgroup / DOWN * WIDE + strip % STRIPS_ACROSS * STRIP_WIDE) * 16u + at.quad * 4u;
}
