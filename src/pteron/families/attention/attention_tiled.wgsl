//! loops: ceil(ceil(min(context, WINDOW + steps) if WINDOW else context, splits), KEYS) * (2 + ceil(KEYS * QUADS, 4 * WORKGROUP) + ceil(KEYS * VALUE_QUADS, WORKGROUP) + WIDTH + KEYS * (1 + OUT_QUADS) + OUT_QUADS + KEYS // 4) + ceil(ROWS * QUADS, 4 * WORKGROUP) + 4 * (1 + OUT_QUADS) + KEYS // 4
// Attention of many queries (lib/attention_tile.wgsl). A workgroup processes the context of its ROWS rows in tiles of KEYS
// keys. In workgroup memory it multiplies the tile of queries with the tile of keys, replaces the keys by the weights
// exp(score - maximum), and multiplies these with the tile of values.
//
// An invocation always processes the same four rows: it scores four keys of a tile, and accumulates every
// (KEYS / 4)-th vec4 of the values, rescaled when a maximum rises. lib/result.wgsl stores the result.
import package::wgsl::lib::nan::{LOWEST};
import super::lib::heads::{WIDTH};
import super::lib::attention_tile::{QUADS, Span, VALUE_QUADS, index_of, params, q, seen_by, shown, span_of};
import super::lib::window::{WINDOW, cache_row, first_seen, four_cache_rows};
import super::lib::keys::{KEY_UNIT, key_quad};
import super::lib::values::{VALUE_UNIT, value_quad};
import super::lib::softmax::{greatest, weights_of};
import super::lib::result::{store_result};

override ROWS: u32 = 64u;
override KEYS: u32 = 64u;
override BY_SUBGROUPS: bool = false; // the invocations that share rows are neighbours in a subgroup at least as wide
const WORKGROUP = ROWS * KEYS / 16u;
const ROW_QUADS = ROWS / 4u;
const KEY_QUADS = KEYS / 4u;
const OUT_QUADS = (VALUE_QUADS + KEY_QUADS - 1u) / KEY_QUADS; // maximum of output vec4s per row of an invocation
const TILE = KEYS * max(WIDTH, ROWS) / 4u; // vec4s of the keys, and of the weights

var<workgroup> queries: array<vec4<f32>, WIDTH * ROW_QUADS>; // [element][row]
var<workgroup> tile: array<vec4<f32>, TILE>; // keys as [element][key], then weights as [key][row]
var<workgroup> values: array<vec4<f32>, KEYS * VALUE_QUADS>; // [key][element]

@compute @workgroup_size(WORKGROUP)
fn main(
  @builtin(workgroup_id) group: vec3<u32>,
  @builtin(num_workgroups) groups: vec3<u32>,
  @builtin(local_invocation_index) local: u32,
) {
  let span = span_of(group, groups);
  let first = span.first;
  let key_head = span.key_head;
  let batch = span.batch;
  let split = span.split;
  let across = local % KEY_QUADS;
  let down = local / KEY_QUADS;
  let context = u32(params.context);
  let end = span.end;
  let ends = vec4(
    seen_by(first + 4u * down),
    seen_by(first + 4u * down + 1u),
    seen_by(first + 4u * down + 2u),
    seen_by(first + 4u * down + 3u),
  );
  let seen = min(vec4(end), ends);
  let oldest = vec4(first_seen(ends.x), first_seen(ends.y), first_seen(ends.z), first_seen(ends.w));

  for (var i = local; i < ROW_QUADS * QUADS; i += WORKGROUP) {
    let quad = i / ROW_QUADS;
    let row = i % ROW_QUADS;
    let turned = transpose(mat4x4(
      query_at(index_of(first + 4u * row, key_head, batch), quad),
      query_at(index_of(first + 4u * row + 1u, key_head, batch), quad),
      query_at(index_of(first + 4u * row + 2u, key_head, batch), quad),
      query_at(index_of(first + 4u * row + 3u, key_head, batch), quad),
    ));
    queries[(4u * quad) * ROW_QUADS + row] = turned[0];
    queries[(4u * quad + 1u) * ROW_QUADS + row] = turned[1];
    queries[(4u * quad + 2u) * ROW_QUADS + row] = turned[2];
    queries[(4u * quad + 3u) * ROW_QUADS + row] = turned[3];
  }

  let k_base = dot(vec3(batch, 0u, key_head), params.k_strides) / KEY_UNIT;
  let v_base = dot(vec3(batch, 0u, key_head), params.v_strides) / VALUE_UNIT;
  let k_step = params.k_strides.y / KEY_UNIT;
  let v_step = params.v_strides.y / VALUE_UNIT;
  var most = vec4(LOWEST);
  var total = vec4(0.0); // over the keys that this invocation scored
  var gathered: array<mat4x4<f32>, OUT_QUADS>; // a column for each row
  for (var base = span.begin; base < end; base += KEYS) {
    for (var i = local; i < KEY_QUADS * QUADS; i += WORKGROUP) {
      let quad = i / KEY_QUADS;
      let key = i % KEY_QUADS;
      let keys = min(base + 4u * key + vec4(0u, 1u, 2u, 3u), vec4(context - 1u));
      let at = k_base + four_cache_rows(keys) * k_step;
      let turned = transpose(mat4x4(
        key_quad(at.x, quad),
        key_quad(at.y, quad),
        key_quad(at.z, quad),
        key_quad(at.w, quad),
      ));
      tile[(4u * quad) * KEY_QUADS + key] = turned[0];
      tile[(4u * quad + 1u) * KEY_QUADS + key] = turned[1];
      tile[(4u * quad + 2u) * KEY_QUADS + key] = turned[2];
      tile[(4u * quad + 3u) * KEY_QUADS + key] = turned[3];
    }
    for (var i = local; i < KEYS * VALUE_QUADS; i += WORKGROUP) {
      let row = cache_row(min(base + i / VALUE_QUADS, context - 1u));
      values[i] = value_quad(v_base + row * v_step, i % VALUE_QUADS);
    }
    workgroupBarrier();
    var scores = mat4x4<f32>(); // a column for each row
    for (var d = 0u; d < WIDTH; d++) {
      let four_rows = queries[d * ROW_QUADS + down];
      let four_keys = tile[d * KEY_QUADS + across];
      scores[0] += four_rows.x * four_keys;
      scores[1] += four_rows.y * four_keys;
      scores[2] += four_rows.z * four_keys;
      scores[3] += four_rows.w * four_keys;
    }
    let key = base + 4u * across;
    let row = first + 4u * down;
    scores[0] = shown(scores[0], oldest.x, seen.x, index_of(row, key_head, batch), key);
    scores[1] = shown(scores[1], oldest.y, seen.y, index_of(row + 1u, key_head, batch), key);
    scores[2] = shown(scores[2], oldest.z, seen.z, index_of(row + 2u, key_head, batch), key);
    scores[3] = shown(scores[3], oldest.w, seen.w, index_of(row + 3u, key_head, batch), key);
    let tops = vec4(greatest(scores[0]), greatest(scores[1]), greatest(scores[2]), greatest(scores[3]));
    let raised = max(most, greatest_of_rows(tops, local));
    let shrink = exp(most - raised);
    most = raised;
    let weights = mat4x4(
      weights_of(scores[0], most.x),
      weights_of(scores[1], most.y),
      weights_of(scores[2], most.z),
      weights_of(scores[3], most.w),
    );
    total = total * shrink + vec4(1.0) * weights;
    let turned = transpose(weights);
    tile[(4u * across) * ROW_QUADS + down] = turned[0];
    tile[(4u * across + 1u) * ROW_QUADS + down] = turned[1];
    tile[(4u * across + 2u) * ROW_QUADS + down] = turned[2];
    tile[(4u * across + 3u) * ROW_QUADS + down] = turned[3];
    for (var e = 0u; e < OUT_QUADS; e++) {
      gathered[e][0] *= shrink.x;
      gathered[e][1] *= shrink.y;
      gathered[e][2] *= shrink.z;
      gathered[e][3] *= shrink.w;
    }
    workgroupBarrier();
    for (var c = 0u; c < KEYS; c++) {
      let four_rows = tile[c * ROW_QUADS + down];
      for (var e = 0u; e < OUT_QUADS; e++) {
        let value = values[c * VALUE_QUADS + min(across + e * KEY_QUADS, VALUE_QUADS - 1u)];
        gathered[e][0] += four_rows.x * value;
        gathered[e][1] += four_rows.y * value;
        gathered[e][2] += four_rows.z * value;
        gathered[e][3] += four_rows.w * value;
      }
    }
    workgroupBarrier();
  }

  let totals = sum_of_rows(total, local);
  for (var r = 0u; r < 4u; r++) {
    let row = first + 4u * down + r;
    if (row >= params.steps * params.heads_per_key) { return; }
    let index = index_of(row, key_head, batch);
    let query = (batch * params.heads + index.z) * params.steps + index.y;
    for (var e = 0u; e < OUT_QUADS; e++) {
      let quad = across + e * KEY_QUADS;
      if (quad < VALUE_QUADS) { store_result(query, split, quad, gathered[e][r], most[r], totals[r]); }
    }
  }
}

fn query_at(index: vec3<u32>, quad: u32) -> vec4<f32> {
  return vec4<f32>(q[dot(index, params.q_strides) / 4u + quad]) * params.scale;
}

// Over the KEYS / 4 invocations that share four rows: the maximum and the sum of each row, given to all of them. A
// barrier protects earlier reads of `tile`, which they may overwrite.
fn greatest_of_rows(values: vec4<f32>, local: u32) -> vec4<f32> {
  var most = values;
  @if(BY_SUBGROUPS) for (var apart = 1u; apart < KEYS / 4u; apart *= 2u) {
    most = max(most, subgroupShuffleXor(most, apart));
  }
  @else {
    workgroupBarrier();
    tile[local] = values;
    workgroupBarrier();
    let first = local / (KEYS / 4u) * (KEYS / 4u);
    for (var i = 0u; i < KEYS / 4u; i++) { most = max(most, tile[first + i]); }
  }
  workgroupBarrier();
  return most;
}

fn sum_of_rows(values: vec4<f32>, local: u32) -> vec4<f32> {
  @if(BY_SUBGROUPS) {
    var sum = values;
    for (var apart = 1u; apart < KEYS / 4u; apart *= 2u) { sum += subgroupShuffleXor(sum, apart); }
    return sum;
  }
  @else {
    workgroupBarrier();
    tile[local] = values;
    workgroupBarrier();
    let first = local / (KEYS / 4u) * (KEYS / 4u);
    var sum = vec4(0.0);
    for (var i = 0u; i < KEYS / 4u; i++) { sum += tile[first + i]; }
    workgroupBarrier();
    return sum;
  }
}
