//! loops: (ceil(ceil(min(context, WINDOW + steps) if WINDOW else context, splits), KEYS) + 1) * (KEYS + 40) + 40 + OUT_QUADS * (ceil(context, 4) + 1) * (1 + QUADS)
// Attention of many queries (lib/attention_tile.wgsl) by matrices (lib/matrix_cores.wgsl). A workgroup of DOWN × ACROSS
// subgroups processes the context of its ROWS rows in tiles of KEYS keys; a subgroup has 16 rows, and a share of the keys
// of scores and of the elements of values. For every tile, scores go through workgroup memory to the invocations, LANES of
// them for a row, which replace them by the weights exp(score - maximum), as halves; products of weights and values go the
// same way, and are added to those of the tiles before, rescaled when a maximum rises.
//
// Queries, keys, weights and values are in PLANES planes of halves (lib/matrix_halves.wgsl), products with low halves in
// sums of their own. Keys and values of a tile take turns in the same memory.
import package::wgsl::lib::nan::{LOWEST, minus_infinity};
import package::wgsl::lib::matrix_halves::{LARGEST, SMALLEST, largest, put_split};
@if(IS_EMULATED) import package::wgsl::lib::matrix_emulated::{LOW_SCALE, Sums, begin_matrices, largest_of, left_at, multiplied, put_sums, put_word, right_across_at, right_at, sum_of, sums_at, word_at};
@else import package::wgsl::lib::matrix_cores::{LOW_SCALE, Sums, begin_matrices, largest_of, left_at, multiplied, put_sums, put_word, right_across_at, right_at, sum_of, sums_at, word_at};
import super::lib::heads::{VALUE_WIDTH, WIDTH};
import super::lib::attention_tile::{QUADS, Span, VALUE_QUADS, index_of, params, q, seen_by, shown, span_of};
import super::lib::window::{WINDOW, cache_row, first_seen};
import super::lib::keys::{KEY_UNIT, key_quad};
import super::lib::values::{VALUE_UNIT, value_quad};
import super::lib::softmax::{greatest, weights_of};
import super::lib::result::{store_result};

override DOWN: u32 = 2u;
override ACROSS: u32 = 2u; // a power of two
override KEYS: u32 = 32u; // a multiple of 16 · ACROSS
override PLANES: u32 = 2u;
const WORKGROUP = 32u * DOWN * ACROSS;
const ROWS = 16u * DOWN;
const LANES = 2u * ACROSS;
override IS_CHECKED: bool = true; // halves may not hold the numbers: those that they do not are computed from floats

// Places in workgroup memory, in halves.
const PITCH = WIDTH + 8u; // of queries and keys
const VALUE_PITCH = VALUE_WIDTH + 8u;
const WEIGHT_PITCH = KEYS + 8u;
const QUERY_PLANE = ROWS * PITCH;
const KEY_PLANE = KEYS * PITCH;
const VALUE_PLANE = KEYS * VALUE_PITCH;
const WEIGHT_PLANE = ROWS * WEIGHT_PITCH;
const TILE_START = PLANES * QUERY_PLANE; // keys, then values
const WEIGHT_START = TILE_START + PLANES * max(KEY_PLANE, VALUE_PLANE);
const SUM_START = WEIGHT_START + PLANES * WEIGHT_PLANE; // scores, then products of weights and values

const SCORE_MATRICES = KEYS / 16u;
const SCORE_SHARE = SCORE_MATRICES / ACROSS; // of a subgroup
const SCORE_COUNT = PLANES * SCORE_SHARE;
const VALUE_MATRICES = VALUE_WIDTH / 16u;
const VALUE_SHARE = (VALUE_MATRICES + ACROSS - 1u) / ACROSS;
const VALUE_COUNT = PLANES * VALUE_SHARE;
const SCORE_QUADS = KEYS / 4u / LANES; // of an invocation
const OUT_QUADS = (VALUE_QUADS + LANES - 1u) / LANES;
const KEY_LOADS = (KEYS * QUADS + WORKGROUP - 1u) / WORKGROUP; // quads per invocation and tile
const VALUE_LOADS = (KEYS * VALUE_QUADS + WORKGROUP - 1u) / WORKGROUP;

// The row of a key in its cache; past the context, that of the last.
fn row_of_key(key: u32) -> u32 { return cache_row(min(key, u32(params.context) - 1u)); }

fn key_at(span: Span, key: u32, quad: u32) -> vec4<f32> {
  let first = dot(vec3(span.batch, 0u, span.key_head), params.k_strides) / KEY_UNIT;
  return key_quad(first + row_of_key(key) * (params.k_strides.y / KEY_UNIT), quad);
}

fn value_at(span: Span, key: u32, quad: u32) -> vec4<f32> {
  let first = dot(vec3(span.batch, 0u, span.key_head), params.v_strides) / VALUE_UNIT;
  return value_quad(first + row_of_key(key) * (params.v_strides.y / VALUE_UNIT), quad);
}

fn query_at(span: Span, row: u32, quad: u32) -> vec4<f32> {
  let index = index_of(span.first + row, span.key_head, span.batch);
  return vec4<f32>(q[dot(index, params.q_strides) / 4u + quad]);
}

// Where matrix n of `count` is in the sums of the 16 rows of a subgroup.
fn sums_place(plane: u32, strip: u32, n: u32, count: u32) -> u32 {
  return SUM_START / 2u + 256u * ((plane * DOWN + strip) * count + n);
}

// Four neighbouring columns of the sums of a row.
fn sums_of(row: u32, quad: u32, count: u32) -> vec4<f32> {
  let place = row % 16u * 16u + quad % 4u * 4u;
  var sums = sums_at(sums_place(0u, row / 16u, quad / 4u, count) + place);
  if (PLANES == 2u) { sums += sums_at(sums_place(1u, row / 16u, quad / 4u, count) + place) / LOW_SCALE; }
  return sums;
}

fn dot_of_four(span: Span, row: u32, key: u32) -> vec4<f32> {
  var scores = vec4(0.0);
  for (var quad = 0u; quad < QUADS; quad++) {
    let query = query_at(span, row, quad);
    //! unroll
    for (var e = 0u; e < 4u; e++) { scores[e] += dot(query, key_at(span, key + e, quad)); }
  }
  return scores * params.scale;
}

@compute @workgroup_size(WORKGROUP)
fn main(
  @builtin(workgroup_id) group: vec3<u32>,
  @builtin(num_workgroups) groups: vec3<u32>,
  @builtin(local_invocation_index) local: u32,
) {
  let span = span_of(group, groups);
  let strip = local / 32u % DOWN;
  let part = local / 32u / DOWN;
  let own = local / LANES; // its row
  let lane = local % LANES;
  let index = index_of(span.first + own, span.key_head, span.batch);
  let end_of_row = seen_by(span.first + own);
  let oldest = first_seen(end_of_row);
  let seen = min(span.end, end_of_row);
  begin_matrices(local);
  if (local < 2u) { put_word(local, 0u); }

  // The largest magnitudes of queries and keys, and of values.
  var largest_factor = 0.0;
  var largest_value = 0.0;
  for (var i = local; i < ROWS * QUADS; i += WORKGROUP) {
    let query = query_at(span, i / QUADS, i % QUADS);
    put_split(i / QUADS * PITCH + i % QUADS * 4u, QUERY_PLANE, PLANES, query);
    largest_factor = max(largest_factor, largest(abs(query)));
  }
  var keys: array<vec4<f32>, KEY_LOADS>;
  var values: array<vec4<f32>, VALUE_LOADS>;
  //! unroll
  for (var i = 0u; i < KEY_LOADS; i++) {
    let at = local + i * WORKGROUP;
    keys[i] = key_at(span, span.begin + at / QUADS, at % QUADS);
  }
  var most = LOWEST;
  var total = 0.0; // over the keys that this invocation scored
  var gathered: array<vec4<f32>, OUT_QUADS>;
  var none: Sums; // zeros
  //! spread
  var scores: array<Sums, SCORE_COUNT>;
  //! spread
  var products: array<Sums, VALUE_COUNT>;
  for (var base = span.begin; base < span.end; base += KEYS) {
    //! unroll
    for (var i = 0u; i < KEY_LOADS; i++) {
      let at = local + i * WORKGROUP;
      if (KEYS * QUADS % WORKGROUP == 0u || at < KEYS * QUADS) {
        put_split(TILE_START + at / QUADS * PITCH + at % QUADS * 4u, KEY_PLANE, PLANES, keys[i]);
        largest_factor = max(largest_factor, largest(abs(keys[i])));
      }
    }
    workgroupBarrier();
    //! unroll
    for (var i = 0u; i < VALUE_LOADS; i++) {
      let at = local + i * WORKGROUP;
      values[i] = value_at(span, base + at / VALUE_QUADS, at % VALUE_QUADS);
    }
    //! unroll
    for (var n = 0u; n < SCORE_COUNT; n++) { scores[n] = none; }
    //! unroll
    for (var d = 0u; d < WIDTH; d += 16u) {
      let query = left_at(strip * 16u * PITCH + d, PITCH);
      //! unroll
      for (var n = 0u; n < SCORE_SHARE; n++) {
        let place = TILE_START + (part * SCORE_SHARE + n) * 16u * PITCH + d;
        let key = right_at(place, PITCH);
        scores[n] = multiplied(query, key, scores[n]);
        if (PLANES == 2u) {
          let query_low = left_at(QUERY_PLANE + strip * 16u * PITCH + d, PITCH);
          let key_low = right_at(KEY_PLANE + place, PITCH);
          scores[SCORE_COUNT - SCORE_SHARE + n] = multiplied(query_low, key, scores[SCORE_COUNT - SCORE_SHARE + n]);
          scores[SCORE_COUNT - SCORE_SHARE + n] = multiplied(query, key_low, scores[SCORE_COUNT - SCORE_SHARE + n]);
        }
      }
    }
    //! unroll
    for (var n = 0u; n < SCORE_COUNT; n++) {
      let plane = n / SCORE_SHARE;
      put_sums(sums_place(plane, strip, part * SCORE_SHARE + n % SCORE_SHARE, SCORE_MATRICES), scores[n]);
    }
    workgroupBarrier();

    //! spread
    var own_scores: array<vec4<f32>, SCORE_QUADS>;
    var top = minus_infinity();
    //! unroll
    for (var c = 0u; c < SCORE_QUADS; c++) {
      let quad = c * LANES + lane;
      let product = sums_of(own, quad, SCORE_MATRICES) * params.scale;
      own_scores[c] = shown(product, oldest, seen, index, base + 4u * quad);
      top = max(top, greatest(own_scores[c]));
    }
    let raised = max(most, largest_of(top, LANES, local));
    let shrink = exp(most - raised);
    most = raised;
    total *= shrink;
    //! unroll
    for (var c = 0u; c < SCORE_QUADS; c++) {
      let weights = weights_of(own_scores[c], most);
      total += weights.x + weights.y + weights.z + weights.w;
      put_split(WEIGHT_START + own * WEIGHT_PITCH + 4u * (c * LANES + lane), WEIGHT_PLANE, PLANES, weights);
    }
    //! unroll
    for (var i = 0u; i < VALUE_LOADS; i++) {
      let at = local + i * WORKGROUP;
      if (KEYS * VALUE_QUADS % WORKGROUP == 0u || at < KEYS * VALUE_QUADS) {
        let place = TILE_START + at / VALUE_QUADS * VALUE_PITCH + at % VALUE_QUADS * 4u;
        put_split(place, VALUE_PLANE, PLANES, values[i]);
        largest_value = max(largest_value, largest(abs(values[i])));
      }
    }
    workgroupBarrier();

    //! unroll
    for (var i = 0u; i < KEY_LOADS; i++) {
      let at = local + i * WORKGROUP;
      keys[i] = key_at(span, base + KEYS + at / QUADS, at % QUADS);
    }
    //! unroll
    for (var n = 0u; n < VALUE_COUNT; n++) { products[n] = none; }
    //! unroll
    for (var c = 0u; c < KEYS; c += 16u) {
      let weights = left_at(WEIGHT_START + strip * 16u * WEIGHT_PITCH + c, WEIGHT_PITCH);
      //! unroll
      for (var n = 0u; n < VALUE_SHARE; n++) {
        // If elements are fewer than shares, several subgroups compute the last ones.
        let place = TILE_START + c * VALUE_PITCH + min(part * VALUE_SHARE + n, VALUE_MATRICES - 1u) * 16u;
        let value = right_across_at(place, VALUE_PITCH);
        products[n] = multiplied(weights, value, products[n]);
        if (PLANES == 2u) {
          let weights_low = left_at(WEIGHT_START + WEIGHT_PLANE + strip * 16u * WEIGHT_PITCH + c, WEIGHT_PITCH);
          let value_low = right_across_at(VALUE_PLANE + place, VALUE_PITCH);
          products[VALUE_COUNT - VALUE_SHARE + n] =
            multiplied(weights_low, value, products[VALUE_COUNT - VALUE_SHARE + n]);
          products[VALUE_COUNT - VALUE_SHARE + n] =
            multiplied(weights, value_low, products[VALUE_COUNT - VALUE_SHARE + n]);
        }
      }
    }
    //! unroll
    for (var n = 0u; n < VALUE_COUNT; n++) {
      let matrix = min(part * VALUE_SHARE + n % VALUE_SHARE, VALUE_MATRICES - 1u);
      put_sums(sums_place(n / VALUE_SHARE, strip, matrix, VALUE_MATRICES), products[n]);
    }
    workgroupBarrier();
    //! unroll
    for (var e = 0u; e < OUT_QUADS; e++) {
      let quad = min(e * LANES + lane, VALUE_QUADS - 1u);
      gathered[e] = gathered[e] * shrink + sums_of(own, quad, VALUE_MATRICES);
    }
  }

  total = sum_of(total, LANES, local);
  if (IS_CHECKED) {
    if (largest_factor >= LARGEST || largest_value >= LARGEST) { put_word(0u, 1u); }
    if (largest_value > 0.0) { put_word(1u, 1u); }
    workgroupBarrier();
    if (largest_value >= SMALLEST) { put_word(1u, 2u); }
    workgroupBarrier();
  }
  let is_exact = !IS_CHECKED || (word_at(0u) == 0u && word_at(1u) != 1u);
  if (span.first + own >= params.steps * params.heads_per_key) { return; }
  let query = (span.batch * params.heads + index.z) * params.steps + index.y;
  //! unroll
  for (var e = 0u; e < OUT_QUADS; e++) {
    let quad = e * LANES + lane;
    if (quad < VALUE_QUADS) {
      if (is_exact) {
        store_result(query, span.split, quad, gathered[e], most, total);
      } else {
        store_from_floats(span, own, quad, oldest, seen, query);
      }
    }
  }
}

// Four elements of a row's result, from floats.
fn store_from_floats(span: Span, row: u32, quad: u32, oldest: u32, seen: u32, query: u32) {
  let index = index_of(span.first + row, span.key_head, span.batch);
  var most = LOWEST;
  var total = 0.0;
  var sum = vec4(0.0);
  for (var key = span.begin; key < span.end; key += 4u) {
    let scores = shown(dot_of_four(span, row, key), oldest, seen, index, key);
    let raised = max(most, greatest(scores));
    let weights = weights_of(scores, raised);
    let shrink = exp(most - raised);
    most = raised;
    total = total * shrink + weights.x + weights.y + weights.z + weights.w;
    sum *= shrink;
    //! unroll
    for (var e = 0u; e < 4u; e++) { sum += weights[e] * value_at(span, key + e, quad); }
  }
  store_result(query, span.split, quad, sum, most, total);
}
