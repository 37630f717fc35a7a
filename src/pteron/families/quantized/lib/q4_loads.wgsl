// What an invocation loads of x and of the weights for every step of STEP k of a tile (lib/tile.wgsl), over PART words,
// a multiple of STEP_WORDS. HEIGHT, WIDTH and WORKGROUP are the kernel's.
import super::tile::{Tile, weights_row};
import super::rows_in_order::{row_at};
import super::q4::{GROUP, GROUPS, PART, PARTS, WORDS, Word, load, load_word, minimum, scales};

override STEP: u32 = 16u; // k per step, a multiple of eight
const STEP_WORDS = STEP / 8u;
const STEP_QUADS = STEP / 4u;
const STEPS = PART / STEP_WORDS; // a constant: compilers optimise loops better if the count is known
const IS_WHOLE = PARTS * PART == WORDS; // no part extends past the end of a row

// Loads per step: vec4s of x (four k of a row) and words of weights (eight k of a column).
const X_COUNT = HEIGHT * STEP / 4u;
const W_COUNT = WIDTH * STEP / 8u;
const X_LOADS = (X_COUNT + WORKGROUP - 1u) / WORKGROUP;
const W_LOADS = (W_COUNT + WORKGROUP - 1u) / WORKGROUP;

// The rows of x and of weights that an invocation loads.
struct Rows {
  x: array<u32, X_LOADS>,
  weights: array<u32, W_LOADS>,
}

fn rows_of(tile: Tile, local: u32) -> Rows {
  var rows: Rows;
  //! unroll
  for (var i = 0u; i < X_LOADS; i++) {
    rows.x[i] = row_at(min(tile.m + (local + i * WORKGROUP) / STEP_QUADS, tile.end - 1u));
  }
  //! unroll
  for (var i = 0u; i < W_LOADS; i++) {
    rows.weights[i] = weights_row(tile, (local + i * WORKGROUP) / STEP_WORDS);
  }
  return rows;
}

// The data that an invocation loads for a step.
struct Loads {
  x: array<vec4<f32>, X_LOADS>,
  words: array<Word, W_LOADS>,
  scales: array<f32, W_LOADS>,
  least: array<f32, W_LOADS>, // the minima of the words' groups
}

// Loads the share of the step that begins at word `base` from global memory. Past the last word, scales
// and minima are zero.
fn fetch(rows: Rows, base: u32, local: u32) -> Loads {
  var loads: Loads;
  //! unroll
  for (var i = 0u; i < X_LOADS; i++) {
    let quad = 2u * base + (local + i * WORKGROUP) % STEP_QUADS;
    loads.x[i] = load(rows.x[i], select(min(quad, 2u * WORDS - 1u), quad, IS_WHOLE));
  }
  //! unroll
  for (var i = 0u; i < W_LOADS; i++) {
    let word = base + (local + i * WORKGROUP) % STEP_WORDS;
    let inside = select(min(word, WORDS - 1u), word, IS_WHOLE);
    loads.words[i] = load_word(rows.weights[i], inside);
    let scale = scales[rows.weights[i] * GROUPS + inside / GROUP];
    loads.scales[i] = select(0.0, scale, IS_WHOLE || word < WORDS);
    loads.least[i] = select(0.0, minimum(rows.weights[i], inside), IS_WHOLE || word < WORDS);
  }
  return loads;
}
