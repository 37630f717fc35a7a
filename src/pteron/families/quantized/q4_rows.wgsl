//! loops: STEPS
//! extent x: 4 * rows * QUADS
//! extent scales: columns * GROUPS
//! extent weights: columns * PITCH
// A product with 4-bit weights for 5 to 32 rows: out[m, n] = Σ x[m, k] · w[n, k] · scale[n, k / group], over PART
// words of eight weights; PART is a multiple of STEP_WORDS. A workgroup multiplies every weight that it unpacks with
// all of its rows of x, at most TALL. lib/q4_result.wgsl finishes the sums.
//
// LANES adjacent invocations share a quad of columns; per step each takes LOAD different words of every column
// at once, unpacks them into registers and multiplies them with x at the same k of every row. x comes
// through workgroup memory, as vec4s of four k, those of all lanes adjacent; meanwhile the next step is loaded from
// global memory into registers. At the end the lanes add up their sums, and each stores TALL / LANES rows. Workgroups
// are numbered along the columns, then along the rows, then by part, in a grid that may be folded.
//
// If gated, the first half of the columns are gates and the second half, OTHERS columns, values: a quad has two of
// each.
import super::lib::q4_params::{params};
import super::lib::q4_result::{X, PARTS, OTHERS, store_quad, store_gated_pair};

override WORDS: u32 = 32u; // words that cover a row of x
override PITCH: u32 = 32u; // words from one row of weights to the next, a multiple of LOAD
override GROUP: u32 = 4u; // words that share a scale, a multiple of LOAD
const GROUPS = (WORDS + GROUP - 1u) / GROUP;
override PART: u32 = 32u;
override QUADS: u32 = 64u; // vec4s of a row of x
override IN_FOURS: bool = false; // words of a column that a lane loads at a time: 4, 2 or 1
override IN_TWOS: bool = false;
@if(IN_FOURS) const LOAD = 4u;
@elif(IN_TWOS) const LOAD = 2u;
@else const LOAD = 1u;
@if(IN_FOURS) alias Load = vec4<u32>;
@elif(IN_TWOS) alias Load = vec2<u32>;
@else alias Load = u32;
override TALL: u32 = 8u; // a multiple of LANES
override LANES: u32 = 8u;
override ACROSS: u32 = 16u; // quads of columns per workgroup
const WORKGROUP = LANES * ACROSS;
override IS_GATED: bool = false;
const STEP_WORDS = LANES * LOAD;
const STEP_QUADS = 2u * STEP_WORDS;
const LANE_QUADS = 2u * LOAD; // vec4s of x per row and step that a lane multiplies
const STEPS = PART / STEP_WORDS;
const IS_WHOLE = PARTS * PART == WORDS; // no part goes past the end of a row
const HAS_ALL_X = IS_WHOLE && QUADS == 2u * WORDS;
const X_PITCH = LANES + 1u; // from one vec4 of a lane to its next: odd, to avoid bank conflicts of adjacent stores
const X_ROW = LANE_QUADS * X_PITCH;
const X_COUNT = TALL * STEP_QUADS;
const X_LOADS = (X_COUNT + WORKGROUP - 1u) / WORKGROUP; // vec4s of x that an invocation loads per step
const SIXTEEN = 0x41800000u; // bits of 16.0: the highest four bits of its significand count in units of 1

@group(0) @binding(0) var<storage, read> x: array<vec4<X>>;
@group(0) @binding(2) var<storage, read> scales: array<f32>;
@if(IN_FOURS) @group(0) @binding(1) var<storage, read> weights: array<vec4<u32>>;
@elif(IN_TWOS) @group(0) @binding(1) var<storage, read> weights: array<vec2<u32>>;
@else @group(0) @binding(1) var<storage, read> weights: array<u32>;

var<workgroup> x_tile: array<vec4<f32>, 2u * TALL * X_ROW>;

fn load_words(n: u32, first: u32) -> Load { return weights[(n * PITCH + first) / LOAD]; }
fn word_of(load: Load, index: u32) -> u32 {
  @if(IN_FOURS || IN_TWOS) return load[index];
  @else return load;
}

// The row of weights of an element of a quad; past the end, the last row.
fn weights_row(quad: u32, element: u32) -> u32 {
  if (!IS_GATED) { return min(4u * quad + element, params.columns - 1u); }
  return min(2u * quad + element % 2u, OTHERS - 1u) + element / 2u * OTHERS;
}

// The data that a lane loads for a step: words and scales of its four columns, and its share of x.
struct Loads {
  words: array<Load, 4>,
  scales: vec4<f32>,
  x: array<vec4<f32>, X_LOADS>,
}

// Loads the share of the step that begins at word `base`. Past the last word, scales and x are zero.
fn fetch(rows: vec4<u32>, m_first: u32, base: u32, local: u32) -> Loads {
  var loads: Loads;
  let word = base + local % LANES * LOAD;
  let inside = select(min(word, WORDS - 1u) / LOAD * LOAD, word, IS_WHOLE);
  //! unroll
  for (var e = 0u; e < 4u; e++) {
    loads.words[e] = load_words(rows[e], inside);
    loads.scales[e] = scales[rows[e] * GROUPS + inside / GROUP];
  }
  loads.scales = select(vec4(0.0), loads.scales, IS_WHOLE || word < WORDS);
  //! unroll
  for (var i = 0u; i < X_LOADS; i++) {
    let at = local + i * WORKGROUP;
    let quad = 2u * base + at % STEP_QUADS;
    let m = min(m_first + at / STEP_QUADS, params.rows - 1u);
    let value = vec4<f32>(x[m * QUADS + select(min(quad, QUADS - 1u), quad, HAS_ALL_X)]);
    loads.x[i] = select(vec4(0.0), value, HAS_ALL_X || quad < QUADS);
  }
  return loads;
}

// Stores the share of x to one of two buffers in workgroup memory.
fn put_x(loads: Loads, buffer: u32, local: u32) {
  //! unroll
  for (var i = 0u; i < X_LOADS; i++) {
    let at = local + i * WORKGROUP;
    if (X_COUNT % WORKGROUP == 0u || at < X_COUNT) {
      let quad = at % STEP_QUADS;
      let cell = quad % LANE_QUADS * X_PITCH + quad / LANE_QUADS;
      x_tile[(buffer * TALL + at / STEP_QUADS) * X_ROW + cell] = loads.x[i];
    }
  }
}

// The weight at `nibble` of four words, scaled. A weight is stored as its value plus 8; inserted into the bits of
// 16.0 it gives the float value + 24, so `offset` is -24 · scale.
fn unpack_quad(words: vec4<u32>, nibble: u32, scale: vec4<f32>, offset: vec4<f32>) -> vec4<f32> {
  let shift = nibble % 4u * 4u;
  let half = select(words, words >> vec4(16u), nibble >= 4u);
  let bits = ((half & vec4(15u << shift)) << vec4(19u - shift)) + vec4(SIXTEEN);
  return fma(bitcast<vec4<f32>>(bits), scale, offset);
}

// One step of two sums over lanes with one shuffle: lanes with `bit` continue with b, the others with a.
fn either(a: vec4<f32>, b: vec4<f32>, bit: u32, local: u32) -> vec4<f32> {
  let is_b = (local & bit) != 0u;
  return select(a, b, is_b) + subgroupShuffleXor(select(b, a, is_b), bit);
}

@compute @workgroup_size(WORKGROUP)
fn main(
  @builtin(workgroup_id) group: vec3<u32>,
  @builtin(num_workgroups) groups: vec3<u32>,
  @builtin(local_invocation_index) local: u32,
) {
  let index = group.x + group.y * groups.x;
  let across = (params.columns + 4u * ACROSS - 1u) / (4u * ACROSS);
  let down = (params.rows + TALL - 1u) / TALL;
  let part = index / across / down;
  if (part >= PARTS) { return; }
  let m_first = index / across % down * TALL;
  let quad = index % across * ACROSS + local / LANES;
  let lane = local % LANES;
  let rows = vec4(weights_row(quad, 0u), weights_row(quad, 1u), weights_row(quad, 2u), weights_row(quad, 3u));
  let first = part * PART;
  var loads = fetch(rows, m_first, first, local);
  put_x(loads, 0u, local);
  workgroupBarrier();
  //! spread
  var sums: array<vec4<f32>, TALL>;
  for (var step = 0u; step < STEPS; step++) {
    let held = loads.words;
    let scale = loads.scales;
    let offset = -24.0 * scale;
    // The last step is loaded twice, so that all iterations are alike.
    loads = fetch(rows, m_first, first + min(step + 1u, STEPS - 1u) * STEP_WORDS, local);
    let cell = step % 2u * TALL * X_ROW + lane;
    //! unroll
    for (var i = 0u; i < LANE_QUADS; i++) {
      let words = vec4(
        word_of(held[0], i / 2u), word_of(held[1], i / 2u), word_of(held[2], i / 2u), word_of(held[3], i / 2u),
      );
      let a = unpack_quad(words, i % 2u * 4u, scale, offset);
      let b = unpack_quad(words, i % 2u * 4u + 1u, scale, offset);
      let c = unpack_quad(words, i % 2u * 4u + 2u, scale, offset);
      let d = unpack_quad(words, i % 2u * 4u + 3u, scale, offset);
      //! unroll
      for (var m = 0u; m < TALL; m++) {
        let value = x_tile[cell + m * X_ROW + i * X_PITCH];
        sums[m] = fma(vec4(value.x), a, sums[m]);
        sums[m] = fma(vec4(value.y), b, sums[m]);
        sums[m] = fma(vec4(value.z), c, sums[m]);
        sums[m] = fma(vec4(value.w), d, sums[m]);
      }
    }
    put_x(loads, (step + 1u) % 2u, local);
    workgroupBarrier();
  }
  // Add up over the lanes; each step halves the rows per lane.
  //! unroll
  for (var m = 0u; m < TALL / 2u; m++) { sums[m] = either(sums[m], sums[m + TALL / 2u], 1u, local); }
  //! unroll
  for (var m = 0u; m < TALL / 4u; m++) { sums[m] = either(sums[m], sums[m + TALL / 4u], 2u, local); }
  //! unroll
  for (var m = 0u; m < TALL / 8u; m++) { sums[m] = either(sums[m], sums[m + TALL / 8u], 4u, local); }
  let row_offset = lane % 2u * (TALL / 2u) + lane / 2u % 2u * (TALL / 4u) + lane / 4u * (TALL / 8u);
  //! unroll
  for (var t = 0u; t < TALL / LANES; t++) {
    let m = m_first + row_offset + t;
    if (m < params.rows) {
      @if(IS_GATED) if (2u * quad < OTHERS) { store_gated_pair(m, 2u * quad, sums[t].xy, sums[t].zw); }
      @else if (4u * quad < params.columns) { store_quad(part, m, 4u * quad, sums[t]); }
    }
  }
}
