//! loops: STEPS
//! extent x: 2 * rows * WORDS
//! extent scales: columns * GROUPS
//! extent x_scales: 2 * rows
// A product of int8 activations with 4-bit weights by tiles (lib/tile.wgsl):
// out[m, n] = x_scale[m] · Σ (x[m, k] - zero[m]) · w[n, k] · scale[n, k / group] + added(n).
//
// Within a group, Σ x · w is an exact integer. The terms of the zero points are subtracted at the end
// (lib/offsets.wgsl). x is written by q4_quantize.wgsl or quantize_rows.wgsl: a pair of words holds the even and the
// odd elements of eight, the order in which masks extract weights from a word. x_scales has the scales of all rows,
// then their zero points. Every step loads STEP_WORDS words of each row into workgroup memory, k outermost, into the
// one of two buffers that is not being read. PART and WORDS are multiples of GROUP, and GROUP of STEP_WORDS.
import super::lib::q4_params::{params};
import super::lib::q4_result::{PARTS};
import super::lib::words::{load_word};
import super::lib::tile::{Tile, tile_of, weights_row};
import super::lib::tile_rows::{place_of, store_row};
import package::wgsl::lib::tile_lanes::{ACROSS, DOWN, HEIGHT, QUADS_TALL, TALL, WIDE, WIDTH, WORKGROUP, position_of};
import super::lib::rows_in_order::{row_at};
import super::lib::offsets::{offset_of, put_offsets};

override WORDS: u32 = 8u;
override PITCH: u32 = 8u;
override GROUP: u32 = 4u;
const GROUPS = WORDS / GROUP;
override PART: u32 = 8u;
override STEP: u32 = 32u; // k
const STEP_WORDS = STEP / 8u;
const GROUP_STEPS = GROUP / STEP_WORDS;
const STEPS = PART / STEP_WORDS; // a constant: compilers optimise loops better if the count is known
const IS_WHOLE = PARTS * PART == WORDS; // no part extends past the end of a row
const MIDDLE = 12582912.0; // 1.5 · 2^23: adding n to its bits adds n to the float, for |n| < 2^22
const MIDDLE_BITS = 0x4b400000i;

const X_COUNT = HEIGHT * STEP_WORDS; // pairs of words per step
const W_COUNT = WIDTH * STEP_WORDS;
const X_LOADS = (X_COUNT + WORKGROUP - 1u) / WORKGROUP;
const W_LOADS = (W_COUNT + WORKGROUP - 1u) / WORKGROUP;
const X_PITCH = HEIGHT / 4u + 1u; // vec4s from one word to the next
const W_PITCH = WIDTH / 4u + 1u;
const X_BUFFER = 2u * STEP_WORDS * X_PITCH;
const W_BUFFER = 2u * STEP_WORDS * W_PITCH;

@group(0) @binding(0) var<storage, read> x: array<vec2<u32>>;
@group(0) @binding(2) var<storage, read> scales: array<f32>;

var<workgroup> x_tile: array<vec4<u32>, 2u * X_BUFFER>;
var<workgroup> w_tile: array<vec4<u32>, 2u * W_BUFFER>;

// The rows of x and of weights that an invocation loads, and the rows of weights of its outputs.
struct Rows {
  x: array<u32, X_LOADS>,
  weights: array<u32, W_LOADS>,
  outputs: vec4<u32>,
  outputs_second: vec4<u32>,
}

fn rows_of(tile: Tile, position: vec2<u32>, local: u32) -> Rows {
  var rows: Rows;
  //! unroll
  for (var i = 0u; i < X_LOADS; i++) {
    rows.x[i] = row_at(min(tile.m + (local + i * WORKGROUP) / STEP_WORDS, tile.end - 1u));
  }
  //! unroll
  for (var i = 0u; i < W_LOADS; i++) {
    rows.weights[i] = weights_row(tile, (local + i * WORKGROUP) / STEP_WORDS);
  }
  //! unroll
  for (var e = 0u; e < 4u; e++) {
    rows.outputs[e] = weights_row(tile, position.x * 4u + e);
    rows.outputs_second[e] = weights_row(tile, (position.x + (WIDE / 4u - 1u) * ACROSS) * 4u + e);
  }
  return rows;
}

// The data that an invocation loads for a step.
struct Loads {
  x: array<vec2<u32>, X_LOADS>,
  words: array<u32, W_LOADS>,
}

// Loads the share of the step that begins at word `base` from global memory.
fn fetch(rows: Rows, base: u32, local: u32) -> Loads {
  var loads: Loads;
  //! unroll
  for (var i = 0u; i < X_LOADS; i++) {
    let word = base + (local + i * WORKGROUP) % STEP_WORDS;
    loads.x[i] = x[rows.x[i] * WORDS + select(min(word, WORDS - 1u), word, IS_WHOLE)];
  }
  //! unroll
  for (var i = 0u; i < W_LOADS; i++) {
    let word = base + (local + i * WORKGROUP) % STEP_WORDS;
    loads.words[i] = load_word(rows.weights[i], select(min(word, WORDS - 1u), word, IS_WHOLE));
  }
  return loads;
}

// The lower nibble of each byte, stored as its value plus 8, as int8.
fn signed_bytes(nibbles: u32) -> u32 {
  return (((nibbles & 0x0f0f0f0fu) | 0x80808080u) - 0x08080808u) ^ 0x80808080u;
}

// Stores the share to one of two buffers in workgroup memory.
fn store_loads(loads: Loads, buffer: u32, local: u32) {
  //! unroll
  for (var i = 0u; i < X_LOADS; i++) {
    let at = local + i * WORKGROUP;
    if (X_COUNT % WORKGROUP == 0u || at < X_COUNT) {
      let m = at / STEP_WORDS;
      let cell = buffer * X_BUFFER + 2u * (at % STEP_WORDS) * X_PITCH + m / 4u;
      x_tile[cell][m % 4u] = loads.x[i].x;
      x_tile[cell + X_PITCH][m % 4u] = loads.x[i].y;
    }
  }
  //! unroll
  for (var i = 0u; i < W_LOADS; i++) {
    let at = local + i * WORKGROUP;
    if (W_COUNT % WORKGROUP == 0u || at < W_COUNT) {
      let n = at / STEP_WORDS;
      let cell = buffer * W_BUFFER + 2u * (at % STEP_WORDS) * W_PITCH + n / 4u;
      w_tile[cell][n % 4u] = signed_bytes(loads.words[i]);
      w_tile[cell + W_PITCH][n % 4u] = signed_bytes(loads.words[i] >> 4u);
    }
  }
}

// The scales of a group in four rows of weights, zero past the last group.
fn scales_of(rows: vec4<u32>, index: u32) -> vec4<f32> {
  let at = rows * GROUPS + select(min(index, GROUPS - 1u), index, IS_WHOLE);
  let found = vec4(scales[at.x], scales[at.y], scales[at.z], scales[at.w]);
  return select(vec4(0.0), found, IS_WHOLE || index < GROUPS);
}

// A sum, which started at MIDDLE_BITS, as a float.
fn whole(sum: vec4<i32>) -> vec4<f32> { return bitcast<vec4<f32>>(sum) - MIDDLE; }

fn dots(a: u32, b: vec4<u32>) -> vec4<i32> {
  return vec4(dot4I8Packed(a, b.x), dot4I8Packed(a, b.y), dot4I8Packed(a, b.z), dot4I8Packed(a, b.w));
}

@compute @workgroup_size(WORKGROUP)
fn main(
  @builtin(workgroup_id) group: vec3<u32>,
  @builtin(num_workgroups) groups: vec3<u32>,
  @builtin(local_invocation_index) local: u32,
) {
  let tile = tile_of(group, groups);
  if (tile.part >= PARTS) { return; }
  let position = position_of(local);
  let rows = rows_of(tile, position, local);
  let first = tile.part * PART;
  var loads = fetch(rows, first, local);
  put_offsets(tile, local);
  store_loads(loads, 0u, local);
  workgroupBarrier();
  // Sums of an invocation's first quad of columns, and of the second, used if WIDE is 8.
  var totals: array<vec4<f32>, TALL>;
  var totals_second: array<vec4<f32>, TALL>;
  var sums: array<vec4<i32>, TALL>;
  var sums_second: array<vec4<i32>, TALL>;
  //! unroll
  for (var t = 0u; t < TALL; t++) {
    sums[t] = vec4(MIDDLE_BITS);
    sums_second[t] = vec4(MIDDLE_BITS);
  }
  var buffer = 0u;
  for (var step = 0u; step < STEPS; step++) {
    let is_more = step + 1u < STEPS;
    let base = first + step * STEP_WORDS;
    if (is_more) { loads = fetch(rows, base + STEP_WORDS, local); }
    let ends_group = (step + 1u) % GROUP_STEPS == 0u;
    var factors: vec4<f32>;
    var factors_second: vec4<f32>;
    if (ends_group) {
      factors = scales_of(rows.outputs, base / GROUP);
      if (WIDE == 8u) { factors_second = scales_of(rows.outputs_second, base / GROUP); }
    }
    //! unroll
    for (var k = 0u; k < 2u * STEP_WORDS; k++) {
      let right = w_tile[buffer * W_BUFFER + k * W_PITCH + position.x];
      let right_second = w_tile[buffer * W_BUFFER + k * W_PITCH + position.x + (WIDE / 4u - 1u) * ACROSS];
      //! unroll
      for (var q = 0u; q < QUADS_TALL; q++) {
        let left = x_tile[buffer * X_BUFFER + k * X_PITCH + position.y + q * DOWN];
        //! unroll
        for (var e = 0u; e < 4u; e++) {
          sums[4u * q + e] += dots(left[e], right);
          if (WIDE == 8u) { sums_second[4u * q + e] += dots(left[e], right_second); }
        }
      }
    }
    if (ends_group) {
      //! unroll
      for (var t = 0u; t < TALL; t++) {
        totals[t] = fma(whole(sums[t]), factors, totals[t]);
        sums[t] = vec4(MIDDLE_BITS);
        if (WIDE == 8u) {
          totals_second[t] = fma(whole(sums_second[t]), factors_second, totals_second[t]);
          sums_second[t] = vec4(MIDDLE_BITS);
        }
      }
    }
    buffer = 1u - buffer;
    if (is_more) { store_loads(loads, buffer, local); }
    workgroupBarrier();
  }
  let offset = offset_of(position.x);
  let offset_second = offset_of(position.x + (WIDE / 4u - 1u) * ACROSS);
  //! unroll
  for (var t = 0u; t < TALL; t++) {
    let zero = vec4(f32(x_scales[params.rows + row_at(min(place_of(tile, position, t), tile.end - 1u))]));
    store_row(tile, position, t, fma(-zero, offset, totals[t]), fma(-zero, offset_second, totals_second[t]));
  }
}
