//! loops: ceil(ceil(min(context, WINDOW + steps) if WINDOW else context, splits), KEYS * UNROLL) * (1 + VALUE_QUADS + UNROLL * (6 + max(QUADS, VALUE_QUADS) + QUADS + VALUE_QUADS)) + 5 * QUADS + 10 + SUBGROUPS + 10 * VALUE_QUADS + ceil(VALUE_WIDTH, WORKGROUP) * (1 + SUBGROUPS)
//! extent q: (ceil(first + groups[1], chunks * key_heads) - 1) * q_strides[0] + (steps - 1) * q_strides[1] + (key_heads * heads_per_key - 1) * q_strides[2] + WIDTH
//! extent k: (max(CACHES, OWN * ceil(first + groups[1], chunks * key_heads)) - 1) * k_strides[0] + ((RING or context) - 1) * k_strides[1] + (key_heads - 1) * k_strides[2] + KEY_ROW
//! extent v: (max(CACHES, OWN * ceil(first + groups[1], chunks * key_heads)) - 1) * v_strides[0] + ((RING or context) - 1) * v_strides[1] + (key_heads - 1) * v_strides[2] + VALUE_ROW
//! extent places: 2 * ceil(first + groups[1], chunks * key_heads)
//! extent mask: (ceil(first + groups[1], chunks * key_heads) - 1) * mask_strides[0] + (key_heads * heads_per_key - 1) * mask_strides[1] + (steps - 1) * mask_strides[2] + (context - 1) * mask_strides[3] + 1
//! extent slopes: key_heads * heads_per_key
// softmax(scale · q·kᵀ + bias) · v for few queries, over one split of the context. One workgroup computes up to
// four queries that share a key head, over one of `splits` near-equal parts of the context; the grid is (splits, fours of
// queries). The queries of a key head, its rows, are ordered by head, then by step (not as in lib/attention_tile.wgsl).
//
// A group of LANES adjacent invocations of a subgroup processes one key at a time. Each lane multiplies its vec4s
// of the head for all four queries; a butterfly reduction (lib/butterfly.wgsl) gives each lane the score of one
// query; then each lane adds its vec4s of the value, weighted by exp(score - maximum). Every group keeps a running
// maximum and running sums. At the end they are merged by shuffles, then through workgroup memory, and stored by
// lib/result.wgsl, where an epilogue goes, and into attention_merge.wgsl, which finishes several splits.
import package::wgsl::lib::nan::{LOWEST, minus_infinity};
import super::lib::heads::{KEY_ROW, VALUE_ROW, VALUE_WIDTH, WIDTH};
import super::lib::contexts::{CACHES, OWN, cache_of, keys_of};
import super::lib::window::{RING, WINDOW, cache_row, first_seen};
import super::lib::keys::{KEY_UNIT, key_quad};
import super::lib::values::{VALUE_UNIT, value_quad};
import super::lib::softcap::{capped};
import super::lib::bias::{M, bias};
import super::lib::butterfly::{LANES, SUBGROUP, of_all, own_sum, swapped, swapped_four};
import super::lib::softmax::{is_masked};
import super::lib::result::{store_result};

alias Q = f32;
override WORKGROUP: u32 = 256u;
override UNROLL: u32 = 4u; // keys that a group loads at once
override CAUSAL: bool = true; // query s sees the context up to start + s
const ALL = WIDTH / 4u; // vec4s per key
const QUADS = (ALL + LANES - 1u) / LANES; // vec4s of a key per lane
const ALL_VALUES = VALUE_WIDTH / 4u;
const VALUE_QUADS = (ALL_VALUES + LANES - 1u) / LANES;
const KEYS = WORKGROUP / LANES; // keys that a workgroup scores at once
const SUBGROUPS = WORKGROUP / SUBGROUP;
const KEPT = (4u + SUBGROUP / LANES - 1u) / (SUBGROUP / LANES); // queries per lane after over_groups: 4, 2 or 1

struct Params {
  first: u32, // first chunk of this launch, counted over batch and key heads, a multiple of `chunks`
  chunks: u32, // chunks of four queries per key head
  rows: u32, // queries per key head: steps · heads_per_key
  first_query: u32, // first query of this launch, counted over batch, heads and steps
  queries: u32, // in this launch
  splits: u32,
  steps: u32,
  heads: u32,
  key_heads: u32,
  heads_per_key: u32,
  context: i32, // keys to attend to
  start: i32, // position of the first query
  scale: f32,
  q_strides: vec3<u32>, // of (batch, step, head), in elements
  k_strides: vec3<u32>,
  v_strides: vec3<u32>,
  out_strides: vec3<u32>,
  mask_strides: vec4<u32>, // of (batch, head, step, key)
}

@group(0) @binding(0) var<storage, read> q: array<vec4<Q>>;
@group(0) @binding(3) var<storage, read> mask: array<M>;
@group(0) @binding(3) var<storage, read> slopes: array<M>;
@group(0) @binding(4) var<uniform> params: Params;

var<workgroup> tops: array<f32, SUBGROUPS * 4u>; // the greatest score of each (subgroup, query)
var<workgroup> totals: array<f32, SUBGROUPS * 4u>;
var<workgroup> sums: array<vec4<f32>, SUBGROUPS * 4u * ALL_VALUES>;

@compute @workgroup_size(WORKGROUP)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) local: u32) {
  let split = group.x;
  let lane = local % LANES;
  let key_head = (params.first + group.y) / params.chunks % params.key_heads;
  let batch = (params.first + group.y) / params.chunks / params.key_heads;
  let row = 4u * ((params.first + group.y) % params.chunks); // row of the first query
  let context = keys_of(batch);
  var first_end = context; // one past the last key that the first step sees
  if (CAUSAL) { first_end = u32(params.start) + 1u; }
  let low = first_seen(first_end);
  let length = (context - low + params.splits - 1u) / params.splits;
  let first = min(low + split * length, context);
  let end = min(first + length, context);

  // The query whose scores this lane receives; rows are ordered by head, then by step.
  let query_row = min(row + lane % 4u, params.rows - 1u);
  let step = query_row % params.steps;
  let head = key_head * params.heads_per_key + query_row / params.steps;
  var seen = context; // one past its last key
  if (CAUSAL) { seen = min(seen, u32(params.start) + step + 1u); }
  let oldest = first_seen(seen);
  seen = min(seen, end);

  var query: array<mat4x4<f32>, QUADS>; // a column for each query
  for (var e = 0u; e < QUADS; e++) {
    let quad = e * LANES + lane;
    for (var r = 0u; r < 4u; r++) {
      let order = min(row + r, params.rows - 1u);
      let index = vec3(batch, order % params.steps, key_head * params.heads_per_key + order / params.steps);
      let at = dot(index, params.q_strides) / 4u + min(quad, ALL - 1u);
      query[e][r] = select(vec4(0.0), vec4<f32>(q[at]) * params.scale, quad < ALL);
    }
  }

  let k_base = dot(vec3(cache_of(batch), 0u, key_head), params.k_strides) / KEY_UNIT;
  let v_base = dot(vec3(cache_of(batch), 0u, key_head), params.v_strides) / VALUE_UNIT;
  var most = LOWEST;
  var total = 0.0;
  var gathered: array<mat4x4<f32>, VALUE_QUADS>; // a column for each query
  for (var base = first; base < end; base += KEYS * UNROLL) {
    var keys: array<vec4<f32>, UNROLL * QUADS>;
    var values: array<vec4<f32>, UNROLL * VALUE_QUADS>;
    for (var u = 0u; u < UNROLL; u++) {
      let key = cache_row(min(base + u * KEYS + local / LANES, context - 1u));
      for (var e = 0u; e < max(QUADS, VALUE_QUADS); e++) {
        if (e < QUADS) {
          let quad = min(e * LANES + lane, ALL - 1u);
          keys[u * QUADS + e] = key_quad(k_base + key * (params.k_strides.y / KEY_UNIT), quad);
        }
        if (e < VALUE_QUADS) {
          let quad = min(e * LANES + lane, ALL_VALUES - 1u);
          values[u * VALUE_QUADS + e] = value_quad(v_base + key * (params.v_strides.y / VALUE_UNIT), quad);
        }
      }
    }
    var scores: array<f32, UNROLL>; // of this lane's query
    var raised = most;
    for (var u = 0u; u < UNROLL; u++) {
      var products = vec4(0.0); // one for each query
      for (var e = 0u; e < QUADS; e++) { products += keys[u * QUADS + e] * query[e]; }
      let key = base + u * KEYS + local / LANES;
      let score = capped(own_sum(products, lane)) + bias(vec4(batch, head, step, min(key, context - 1u)));
      scores[u] = select(minus_infinity(), score, key >= oldest && key < seen);
      raised = max(raised, scores[u]);
    }
    let shrink = exp(most - raised);
    most = raised;
    total *= shrink;
    let shrinks = of_all(shrink, local);
    for (var e = 0u; e < VALUE_QUADS; e++) { gathered[e] = scaled(gathered[e], shrinks); }
    for (var u = 0u; u < UNROLL; u++) {
      let weight = select(exp(scores[u] - raised), 0.0, is_masked(scores[u]));
      total += weight;
      let weights = of_all(weight, local);
      for (var e = 0u; e < VALUE_QUADS; e++) {
        let value = values[u * VALUE_QUADS + e];
        gathered[e] += mat4x4(value * weights.x, value * weights.y, value * weights.z, value * weights.w);
      }
    }
  }

  // Merge the groups of a subgroup, then the subgroups of the workgroup: first the maxima, then the sums.
  var top = most;
  for (var apart = LANES; apart < SUBGROUP; apart *= 2u) { top = max(top, swapped(top, apart)); }
  let subgroup = local / SUBGROUP;
  if (local % SUBGROUP < 4u) { tops[subgroup * 4u + lane] = top; }
  workgroupBarrier();
  for (var s = 0u; s < SUBGROUPS; s++) { top = max(top, tops[s * 4u + lane % 4u]); }
  let shrink = exp(most - top);
  let shrinks = of_all(shrink, local);
  total *= shrink;
  for (var apart = LANES; apart < SUBGROUP; apart *= 2u) { total += swapped(total, apart); }
  if (local % SUBGROUP < 4u) { totals[subgroup * 4u + lane] = total; }
  for (var e = 0u; e < VALUE_QUADS; e++) {
    let quad = e * LANES + lane;
    var met = over_groups(scaled(gathered[e], shrinks), local);
    if (quad < ALL_VALUES && local % SUBGROUP < 4u * LANES / KEPT) {
      //! unroll
      for (var r = 0u; r < KEPT; r++) { sums[(subgroup * 4u + first_kept(local) + r) * ALL_VALUES + quad] = met[r]; }
    }
  }
  workgroupBarrier();
  for (var i = local; i < 4u * ALL_VALUES; i += WORKGROUP) {
    let query = i / ALL_VALUES;
    let quad = i % ALL_VALUES;
    var values = vec4(0.0);
    var weights = 0.0;
    var greatest = LOWEST;
    for (var s = 0u; s < SUBGROUPS; s++) {
      values += sums[(s * 4u + query) * ALL_VALUES + quad];
      weights += totals[s * 4u + query];
      greatest = max(greatest, tops[s * 4u + query]);
    }
    if (row + query < params.rows) {
      store_result(group.y / params.chunks * params.rows + row + query, split, quad, values, greatest, weights);
    }
  }
}

// The sums over the groups of a subgroup. A lane ends with the sums of KEPT queries, from `first_kept` on: at each
// of the first two steps, lanes exchange half of their sums.
fn over_groups(columns: mat4x4<f32>, local: u32) -> mat4x4<f32> {
  var met = columns;
  if (LANES < SUBGROUP) {
    let is_second = (local & LANES) != 0u;
    //! unroll
    for (var r = 0u; r < 2u; r++) {
      let given = select(columns[r + 2u], columns[r], is_second);
      met[r] = select(columns[r], columns[r + 2u], is_second) + swapped_four(given, LANES);
    }
  }
  if (2u * LANES < SUBGROUP) {
    let is_second = (local & (2u * LANES)) != 0u;
    let given = select(met[1], met[0], is_second);
    met[0] = select(met[0], met[1], is_second) + swapped_four(given, 2u * LANES);
  }
  for (var apart = 4u * LANES; apart < SUBGROUP; apart *= 2u) { met[0] += swapped_four(met[0], apart); }
  return met;
}

fn first_kept(local: u32) -> u32 {
  let group = local % SUBGROUP / LANES;
  return select(select(0u, 2u * (group % 2u), KEPT == 2u), 2u * (group % 2u) + group / 2u % 2u, KEPT == 1u);
}

fn scaled(columns: mat4x4<f32>, by: vec4<f32>) -> mat4x4<f32> {
  return mat4x4(columns[0] * by.x, columns[1] * by.y, columns[2] * by.z, columns[3] * by.w);
}
