//! loops: SPAN // 4 * (2 + QUADS) + ceil(QUADS, 4) * (1 + SPAN // 4)
//! extent q: 4 * Q_ROOM
//! extent mask: sequence * mask_strides[0] + (HEADS - 1) * mask_strides[1] + (steps - 1) * mask_strides[2] + (context - 1) * mask_strides[3] + 1
//! extent k_a: 4 * ROOM
//! extent k_b: 4 * ROOM
//! extent k_c: 4 * ROOM
//! extent k_d: 4 * ROOM
//! extent v_a: 4 * ROOM
//! extent v_b: 4 * ROOM
//! extent v_c: 4 * ROOM
//! extent v_d: 4 * ROOM
// softmax(scale · q·kᵀ + bias) · v over a split of the context, for software adapters. Scores are -∞ where a query does not
// see a key. Caches are bound as uniform arrays: software adapters load a lane's element from a uniform array eight
// times as fast as from a storage buffer.
//
// A split is four spans of keys, one from each array. A workgroup of four invocations computes ROWS queries that
// share a key head. Each invocation scores every fourth key, then accumulates every fourth vec4 of the values with
// the softmax weights of all four lanes.
import package::wgsl::lib::nan::{LOWEST, minus_infinity};
import package::wgsl::lib::lanes::{of_four_lanes};
import super::lib::heads::{WIDTH};
import super::lib::bias::{M, biases};
import super::lib::softmax::{greatest, weights_of};
import super::lib::result::{store_result};

override HEADS: u32 = 8u; // query heads
override KEY_HEADS: u32 = 8u;
override STEPS: u32 = 1u; // steps in q
override ROWS: u32 = 1u; // queries per workgroup
override SPAN: u32 = 64u; // keys that an array holds, a multiple of 4
override CAUSAL: bool = true; // query s sees the context up to start + s
override MASKS: u32 = ROWS; // 1 if all rows have the same mask
const QUADS = WIDTH / 4u;
const HEADS_PER_KEY = HEADS / KEY_HEADS;
const CHUNKS = STEPS * HEADS_PER_KEY / ROWS; // workgroups per key head
const PITCH = KEY_HEADS * QUADS; // vec4s from one key to the next
const ROOM = SPAN * PITCH;
const Q_ROOM = STEPS * HEADS * QUADS;

struct Params {
  first_query: u32, // 0: results are numbered from the first query of the call
  queries: u32, // over batch, heads and steps of the whole call
  splits: u32,
  sequence: u32, // of the batch
  split: u32, // index of this split
  first: u32, // first key of this split
  span: u32, // keys of this split in each array, a multiple of 4
  first_step: u32, // first step in q
  steps: u32, // of the whole call
  heads: u32,
  context: i32, // keys to attend to
  start: i32, // position of the first step
  scale: f32,
  shifts: vec4<u32>, // first key of this split in each array
  out_strides: vec3<u32>, // of (batch, step, head)
  mask_strides: vec4<u32>, // of (batch, head, step, key)
}

@group(0) @binding(0) var<uniform> params: Params;
@group(0) @binding(1) var<uniform> k_a: array<vec4<f32>, ROOM>;
@group(0) @binding(2) var<uniform> k_b: array<vec4<f32>, ROOM>;
@group(0) @binding(3) var<uniform> k_c: array<vec4<f32>, ROOM>;
@group(0) @binding(4) var<uniform> k_d: array<vec4<f32>, ROOM>;
@group(0) @binding(11) var<uniform> v_a: array<vec4<f32>, ROOM>;
@group(0) @binding(12) var<uniform> v_b: array<vec4<f32>, ROOM>;
@group(0) @binding(13) var<uniform> v_c: array<vec4<f32>, ROOM>;
@group(0) @binding(14) var<uniform> v_d: array<vec4<f32>, ROOM>;
@group(0) @binding(9) var<storage, read> mask: array<M>;
@group(0) @binding(15) var<uniform> q: array<vec4<f32>, Q_ROOM>;

fn load_k(array: u32, at: u32) -> vec4<f32> {
  switch (array) {
    case 0u: { return k_a[at]; }
    case 1u: { return k_b[at]; }
    case 2u: { return k_c[at]; }
    default: { return k_d[at]; }
  }
}

fn load_v(array: u32, at: u32) -> vec4<f32> {
  switch (array) {
    case 0u: { return v_a[at]; }
    case 1u: { return v_b[at]; }
    case 2u: { return v_c[at]; }
    default: { return v_d[at]; }
  }
}

@compute @workgroup_size(4)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(subgroup_invocation_id) subgroup_lane: u32) {
  let lane = subgroup_lane % 4u;
  let key_head = group.x / CHUNKS;
  let first_row = group.x % CHUNKS * ROWS; // among the queries that share the key head
  let steps = params.span / 4u;
  let firsts = params.first + params.span * vec4(0u, 1u, 2u, 3u); // keys
  var found: array<array<vec4<f32>, ROWS>, SPAN / 4u>; // scores, then weights, of this lane's keys in each array
  var most = array<f32, ROWS>();
  //! unroll
  for (var t = 0u; t < ROWS; t++) { most[t] = LOWEST; }
  for (var j = 0u; j < steps; j++) {
    let index = 4u * j + lane;
    let at = min(params.shifts + index, vec4(SPAN - 1u)) * PITCH + key_head * QUADS;
    var sums = array<vec4<f32>, ROWS>();
    for (var quad = 0u; quad < QUADS; quad++) {
      var query = array<vec4<f32>, ROWS>();
      //! unroll
      for (var t = 0u; t < ROWS; t++) { query[t] = of_four_lanes(q[q_at(key_head, first_row + t) + quad][lane]); }
      //! unroll
      for (var a = 0u; a < 4u; a++) {
        let key = load_k(a, at[a] + quad);
        //! unroll
        for (var t = 0u; t < ROWS; t++) { sums[t][a] += dot(query[t], key); }
      }
    }
    let keys = min(firsts + index, vec4(u32(params.context) - 1u));
    var added = array<vec4<f32>, MASKS>();
    //! unroll
    for (var t = 0u; t < MASKS; t++) { added[t] = biases(place_of(key_head, first_row + t), keys); }
    //! unroll
    for (var t = 0u; t < ROWS; t++) {
      let is_seen = vec4<i32>(firsts + index) < vec4(seen(first_row + t));
      let shown = params.scale * sums[t] + added[min(t, MASKS - 1u)];
      let scores = select(vec4(minus_infinity()), shown, is_seen);
      found[j][t] = scores;
      most[t] = max(most[t], max(max(scores.x, scores.y), max(scores.z, scores.w)));
    }
  }
  var total = array<f32, ROWS>();
  //! unroll
  for (var t = 0u; t < ROWS; t++) { most[t] = greatest(of_four_lanes(most[t])); }
  for (var j = 0u; j < steps; j++) {
    //! unroll
    for (var t = 0u; t < ROWS; t++) {
      let scores = found[j][t];
      let weights = weights_of(scores, most[t]);
      found[j][t] = weights;
      total[t] += (weights.x + weights.y) + (weights.z + weights.w);
    }
  }
  //! unroll
  for (var t = 0u; t < ROWS; t++) { total[t] = dot(of_four_lanes(total[t]), vec4(1.0)); }

  for (var chunk = 0u; chunk < (QUADS + 3u) / 4u; chunk++) {
    let quad = 4u * chunk + lane;
    let column = key_head * QUADS + min(quad, QUADS - 1u);
    var gathered = array<vec4<f32>, ROWS>();
    for (var j = 0u; j < steps; j++) {
      var weights = array<array<vec4<f32>, 4>, ROWS>(); // by array, then by lane
      //! unroll
      for (var t = 0u; t < ROWS; t++) {
        let lane_weights = found[j][t];
        //! unroll
        for (var a = 0u; a < 4u; a++) { weights[t][a] = of_four_lanes(lane_weights[a]); }
      }
      //! unroll
      for (var l = 0u; l < 4u; l++) {
        let index = 4u * j + l;
        //! unroll
        for (var a = 0u; a < 4u; a++) {
          // Values past the context are undefined: zero times NaN is NaN.
          let there = i32(firsts[a] + index) < params.context;
          let loaded = load_v(a, min(params.shifts[a] + index, SPAN - 1u) * PITCH + column);
          let values = select(vec4(0.0), loaded, there);
          //! unroll
          for (var t = 0u; t < ROWS; t++) { gathered[t] += weights[t][a][l] * values; }
        }
      }
    }
    if (quad < QUADS) {
      //! unroll
      for (var t = 0u; t < ROWS; t++) {
        let row = first_row + t;
        let query = (params.sequence * HEADS + head_of(key_head, row)) * params.steps + step_of(row);
        if (step_of(row) < params.steps) { store_result(query, params.split, quad, gathered[t], most[t], total[t]); }
      }
    }
  }
}

fn head_of(key_head: u32, row: u32) -> u32 { return key_head * HEADS_PER_KEY + row % HEADS_PER_KEY; }
fn step_of(row: u32) -> u32 { return params.first_step + row / HEADS_PER_KEY; }

// The first vec4 in q of a row of a key head.
fn q_at(key_head: u32, row: u32) -> u32 { return (row / HEADS_PER_KEY * HEADS + head_of(key_head, row)) * QUADS; }

// (batch, head, step) of a row, for the mask.
fn place_of(key_head: u32, row: u32) -> vec3<u32> {
  return vec3(params.sequence, head_of(key_head, row), min(step_of(row), params.steps - 1u));
}

// One past the last key that a row sees.
fn seen(row: u32) -> i32 {
  if (!CAUSAL) { return params.context; }
  return min(params.context, params.start + i32(step_of(row)) + 1);
}
