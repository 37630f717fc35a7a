//! loops: (ceil(ceil(min(context, WINDOW + steps) if WINDOW else context, splits), KEYS) + 1) * (KEYS + 60 + 16 * VALUE_SHARE) + 60 + 2 * QUADS + 8 * VALUE_QUADS * (ceil(context, 4) + 1) * (1 + QUADS)
// Attention of many queries (lib/attention_tile.wgsl) by matrices (lib/matrix_cores.wgsl). The context passes through
// workgroup memory in tiles of KEYS keys. A workgroup has DOWN groups of ACROSS subgroups; a group has TALL strips of 16
// rows, and each of its subgroups a share of a tile's keys (of scores) and of the elements of values (of the result).
//
// The queries of a group and its results stay in matrix registers. For every tile, scores = queries · keysᵀ go through
// workgroup memory to the invocations, LANES of them for a row, which put the weights exp(score - reference) back as
// halves; results += weights · values. A row's reference is a maximum of its scores, but it moves only when a score is
// greater by more than HEADROOM, so weights can be up to 256; only then, results go through memory to be rescaled.
//
// Queries and weights are one half, or PLANES = 2: a high and a low half, which keep 22 bits of a row's largest; so are
// keys and values (KEY_PLANES), but those of f16 caches are halves already. Products with low halves go to the same
// sums. Queries are divided by a power of two near the largest of their row. Keys and values take turns in the same memory.
//
// Sums of matrix cores are truncated, an error that grows with the number of additions. With two planes, results therefore
// leave the registers every SETTLED keys: they are added to those in the output's memory, in f32.
//
// What is added to scores goes into `shown` (lib/attention_tile.wgsl; IS_PLAIN is false then), an epilogue into `store_result`
// (lib/result.wgsl) and attention_merge.wgsl, which finishes a context in splits.
import package::wgsl::lib::nan::{LOWEST, minus_infinity};
import package::wgsl::lib::matrix_halves::{LARGEST, SMALLEST, largest};
@if(IS_EMULATED) import package::wgsl::lib::matrix_emulated::{Left, Sums, begin_matrices, largest_of, left_at, multiplied, put_four_sums, put_halves, put_rows_of_sums, put_word, right_across_at, right_at, rows_of_sums, sum_of, sums_at, uniform_word_at, word_at};
@else import package::wgsl::lib::matrix_cores::{Left, Sums, begin_matrices, largest_of, left_at, multiplied, put_four_sums, put_halves, put_rows_of_sums, put_word, right_across_at, right_at, rows_of_sums, sum_of, sums_at, uniform_word_at, word_at};
import super::lib::heads::{VALUE_WIDTH, WIDTH};
import super::lib::attention_tile::{QUADS, Span, VALUE_QUADS, index_of, params, q, seen_by, shown, span_of};
import super::lib::window::{WINDOW, cache_row, first_seen};
import super::lib::softcap::{IS_CAPPED};
import super::lib::keys::{KEY_UNIT, KeyQuad, stored_key};
import super::lib::values::{VALUE_UNIT, ValueQuad, stored_value};
import super::lib::softmax::{greatest, weights_of};
import super::lib::result::{partial_result, put_partial_result, store_result};

override DOWN: u32 = 4u; // groups of subgroups
override ACROSS: u32 = 1u; // subgroups of a group
override TALL: u32 = 1u; // strips of a group
override KEYS: u32 = 32u; // per tile, a multiple of 16 · ACROSS
override PLANES: u32 = 2u; // of queries and weights
override KEY_PLANES: u32 = 2u; // of keys and values
override ROUND: u32 = 1u; // matrices of results per subgroup and strip that go through memory at once; a divisor of VALUE_SHARE
const WORKGROUP = 32u * DOWN * ACROSS;
const ROWS = 16u * DOWN * TALL; // of a workgroup
const LANES = 2u * ACROSS / TALL; // WORKGROUP / ROWS
override IS_CHECKED: bool = false; // halves may not hold the numbers: what they do not is computed from floats
@if(mask || slopes || IS_CAPPED) const IS_PLAIN = false;
@else const IS_PLAIN = true; // scores are products and nothing else
const HEADROOM = 5.545177; // 8 log 2: weights are at most 2^8
override SETTLED: u32 = 1024u; // keys

// Places in workgroup memory, in halves. Queries pass through the same memory before.
const PITCH = WIDTH + 8u; // of queries and keys
const VALUE_PITCH = VALUE_WIDTH + 8u;
const WEIGHT_PITCH = KEYS + 8u;
const SUM_PITCH = KEYS + 8u; // in floats
const KEY_PLANE = KEYS * PITCH;
const VALUE_PLANE = KEYS * VALUE_PITCH;
const WEIGHT_PLANE = ROWS * WEIGHT_PITCH;
const WEIGHT_START = KEY_PLANES * max(KEY_PLANE, VALUE_PLANE);
const SUM_START = WEIGHT_START + PLANES * WEIGHT_PLANE; // scores, then results

const DEPTH = WIDTH / 16u; // matrices along a query
const QUERY_COUNT = PLANES * TALL * DEPTH;
const SCORE_SHARE = KEYS / 16u / ACROSS; // matrices of a subgroup and a strip
const SCORE_COUNT = TALL * SCORE_SHARE;
const VALUE_SHARE = VALUE_WIDTH / 16u / ACROSS;
const VALUE_COUNT = TALL * VALUE_SHARE;
const WEIGHT_COUNT = PLANES * TALL;
const SCORE_QUADS = KEYS / 4u / LANES; // of an invocation
const ROUND_QUADS = 4u * ACROSS * ROUND / LANES;
const KEY_LOADS = (KEYS * QUADS + WORKGROUP - 1u) / WORKGROUP; // quads per invocation and tile
const VALUE_LOADS = (KEYS * VALUE_QUADS + WORKGROUP - 1u) / WORKGROUP;
// The largest keys and values must reach this. Low halves are multiples of 2^-24, so two planes of a number from 2^-6 on have
// an error of 2^-19 of it at most.
const SMALL = select(SMALLEST, 0.015625, KEY_PLANES == 2u);

// The row of a key in its cache; past the context, that of the last.
fn row_of_key(key: u32) -> u32 { return cache_row(min(key, u32(params.context) - 1u)); }

fn key_at(span: Span, key: u32, quad: u32) -> KeyQuad {
  let first = dot(vec3(span.batch, 0u, span.key_head), params.k_strides) / KEY_UNIT;
  return stored_key(first + row_of_key(key) * (params.k_strides.y / KEY_UNIT), quad);
}

fn value_at(span: Span, key: u32, quad: u32) -> ValueQuad {
  let first = dot(vec3(span.batch, 0u, span.key_head), params.v_strides) / VALUE_UNIT;
  return stored_value(first + row_of_key(key) * (params.v_strides.y / VALUE_UNIT), quad);
}

fn query_at(span: Span, row: u32, quad: u32) -> vec4<f32> {
  let index = index_of(span.first + row, span.key_head, span.batch);
  return vec4<f32>(q[dot(index, params.q_strides) / 4u + quad]);
}

// Where a matrix of sums is in memory, in floats: in the rows of a strip, the columns of matrix n of a subgroup's `count`.
fn sums_place(row: u32, part: u32, n: u32, count: u32) -> u32 {
  return SUM_START / 2u + row * SUM_PITCH + (part * count + n) * 16u;
}

// The high half of numbers by their bits (drivers simplify value - f32(f16(value)) to zero), and what it leaves. The
// error is at most 2^-25.
fn high_of(value: vec4<f32>) -> vec4<f32> { return bitcast<vec4<f32>>(bitcast<vec4<u32>>(value) & vec4(0xffffe000u)); }

// Not put_split of lib/matrix_halves.wgsl: low halves are not scaled up, since their products go to the same sums.
fn put_parts(at: u32, plane: u32, planes: u32, value: vec4<f32>) {
  if (planes == 1u) {
    put_halves(at, value);
  } else {
    put_halves(at, high_of(value));
    put_halves(at + plane, value - high_of(value));
  }
}

// One of PLANES planes of numbers.
fn put_part(at: u32, plane: u32, value: vec4<f32>) {
  if (PLANES == 1u) { put_halves(at, value); }
  else if (plane == 0u) { put_halves(at, high_of(value)); }
  else { put_halves(at, value - high_of(value)); }
}

// The quad of values that an invocation has in a round: rows have those of ROUND matrices of each share, from g on.
fn quad_of_round(at: u32, g: u32) -> u32 { return 4u * (at / (4u * ROUND) * VALUE_SHARE + g) + at % (4u * ROUND); }

// The exponent of a power of two near a number, as in an f32.
fn exponent_of(value: f32) -> u32 { return clamp(bitcast<u32>(value) >> 23u, 1u, 253u); }

// The scores of a row for four keys, without what is added to them, from floats.
fn scores_from_floats(span: Span, row: u32, key: u32) -> vec4<f32> {
  var scores = vec4(0.0);
  for (var quad = 0u; quad < QUADS; quad++) {
    let query = query_at(span, row, quad);
    //! unroll
    for (var e = 0u; e < 4u; e++) { scores[e] += dot(query, vec4<f32>(key_at(span, key + e, quad))); }
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
  let part = local / 32u % ACROSS;
  let strip_row = local / 32u / ACROSS * TALL * 16u; // the first row of this subgroup
  let own = local / LANES; // this invocation's row
  let lane = local % LANES;
  let index = index_of(span.first + own, span.key_head, span.batch);
  let end_of_row = seen_by(span.first + own);
  let oldest = first_seen(end_of_row);
  let seen = min(span.end, end_of_row);
  // Keys that every row of the workgroup sees.
  let seen_by_all = min(span.end, seen_by(span.first));
  let oldest_of_all = first_seen(seen_by(span.first + ROWS - 1u));
  begin_matrices(local);

  var largest_query = 0.0;
  for (var quad = lane; quad < QUADS; quad += LANES) {
    largest_query = max(largest_query, largest(abs(query_at(span, own, quad))));
  }
  let exponent = exponent_of(largest_of(largest_query, LANES, local));
  let shrunk = bitcast<f32>((254u - exponent) << 23u);
  let factor = bitcast<f32>(exponent << 23u) * params.scale;
  //! spread
  var queries: array<Left, QUERY_COUNT>;
  //! unroll
  for (var plane = 0u; plane < PLANES; plane++) {
    for (var quad = lane; quad < QUADS; quad += LANES) {
      put_part(own * PITCH + quad * 4u, plane, query_at(span, own, quad) * shrunk);
    }
    workgroupBarrier();
    //! unroll
    for (var m = 0u; m < TALL; m++) {
      //! unroll
      for (var d = 0u; d < DEPTH; d++) {
        queries[(plane * TALL + m) * DEPTH + d] = left_at((strip_row + 16u * m) * PITCH + 16u * d, PITCH);
      }
    }
    workgroupBarrier();
  }
  if (local < 2u) { put_word(local, 0u); }

  // The largest magnitudes of keys and of values.
  var largest_key = 0.0;
  var largest_value = 0.0;
  //! spread
  var keys: array<KeyQuad, KEY_LOADS>;
  //! spread
  var values: array<ValueQuad, VALUE_LOADS>;
  //! unroll
  for (var i = 0u; i < KEY_LOADS; i++) {
    let at = local + i * WORKGROUP;
    keys[i] = key_at(span, span.begin + at / QUADS, at % QUADS);
  }
  var most = LOWEST; // the reference
  var total = 0.0; // over the keys that this invocation scored
  var none: Sums; // zeros; a variable that a loop declares need not be
  //! spread
  var scores: array<Sums, SCORE_COUNT>;
  //! spread
  var results: array<Sums, VALUE_COUNT>;
  var turn = 0u; // which of two words tells whether results go through memory, while the other is cleared for the next tile
  var is_begun = false; // whether there are results in memory already
  var fade = 1.0; // their factor, as the reference moved when they were stored
  let is_row = span.first + own < params.steps * params.heads_per_key;
  let query = (span.batch * params.heads + index.z) * params.steps + index.y;
  for (var base = span.begin; base < span.end; base += KEYS) {
    //! unroll
    for (var i = 0u; i < KEY_LOADS; i++) {
      let at = local + i * WORKGROUP;
      if (KEYS * QUADS % WORKGROUP == 0u || at < KEYS * QUADS) {
        put_parts(at / QUADS * PITCH + at % QUADS * 4u, KEY_PLANE, KEY_PLANES, vec4<f32>(keys[i]));
        if (IS_CHECKED) { largest_key = max(largest_key, largest(abs(vec4<f32>(keys[i])))); }
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
    for (var n = 0u; n < SCORE_SHARE; n++) {
      //! unroll
      for (var d = 0u; d < DEPTH; d++) {
        let place = (part * SCORE_SHARE + n) * 16u * PITCH + 16u * d;
        let key = right_at(place, PITCH);
        //! unroll
        for (var m = 0u; m < TALL; m++) {
          if (PLANES == 2u) {
            scores[m * SCORE_SHARE + n] =
              multiplied(queries[(PLANES - 1u) * TALL * DEPTH + m * DEPTH + d], key, scores[m * SCORE_SHARE + n]);
          }
          if (KEY_PLANES == 2u) {
            scores[m * SCORE_SHARE + n] =
              multiplied(queries[m * DEPTH + d], right_at(KEY_PLANE + place, PITCH), scores[m * SCORE_SHARE + n]);
          }
          scores[m * SCORE_SHARE + n] = multiplied(queries[m * DEPTH + d], key, scores[m * SCORE_SHARE + n]);
        }
      }
    }
    //! unroll
    for (var m = 0u; m < TALL; m++) {
      //! unroll
      for (var n = 0u; n < SCORE_SHARE; n++) {
        put_rows_of_sums(sums_place(strip_row + 16u * m, part, n, SCORE_SHARE), SUM_PITCH, scores[m * SCORE_SHARE + n]);
      }
    }
    workgroupBarrier();

    //! unroll
    for (var i = 0u; i < VALUE_LOADS; i++) {
      let at = local + i * WORKGROUP;
      if (KEYS * VALUE_QUADS % WORKGROUP == 0u || at < KEYS * VALUE_QUADS) {
        put_parts(at / VALUE_QUADS * VALUE_PITCH + at % VALUE_QUADS * 4u, VALUE_PLANE, KEY_PLANES, vec4<f32>(values[i]));
        if (IS_CHECKED) { largest_value = max(largest_value, largest(abs(vec4<f32>(values[i])))); }
      }
    }
    //! spread
    var own_scores: array<vec4<f32>, SCORE_QUADS>;
    var top = minus_infinity();
    //! unroll
    for (var c = 0u; c < SCORE_QUADS; c++) {
      own_scores[c] = sums_at(SUM_START / 2u + own * SUM_PITCH + 4u * (c * LANES + lane)) * factor;
    }
    if (!IS_PLAIN || base < oldest_of_all || base + KEYS > seen_by_all) {
      //! unroll
      for (var c = 0u; c < SCORE_QUADS; c++) {
        own_scores[c] = shown(own_scores[c], oldest, seen, index, base + 4u * (c * LANES + lane));
      }
    }
    //! unroll
    for (var c = 0u; c < SCORE_QUADS; c++) { top = max(top, greatest(own_scores[c])); }
    top = largest_of(top, LANES, local);
    let rises = top > most + HEADROOM;
    let shrink = select(1.0, exp(most - top), rises);
    most = select(most, top, rises);
    total *= shrink;
    //! unroll
    for (var c = 0u; c < SCORE_QUADS; c++) {
      let weights = weights_of(own_scores[c], most);
      total += (weights.x + weights.y) + (weights.z + weights.w);
      put_parts(WEIGHT_START + own * WEIGHT_PITCH + 4u * (c * LANES + lane), WEIGHT_PLANE, PLANES, weights);
    }
    let is_due = PLANES == 2u && (base - span.begin) / KEYS % (SETTLED / KEYS) == SETTLED / KEYS - 1u;
    if (base > span.begin && (rises || is_due)) { put_word(turn, 1u); }
    let is_settled = uniform_word_at(turn) != 0u; // this is a barrier
    turn = 1u - turn;
    if (local == 0u) { put_word(turn, 0u); }
    if (is_settled) {
      //! unroll
      for (var g = 0u; g < VALUE_SHARE; g += ROUND) {
        //! unroll
        for (var m = 0u; m < TALL; m++) {
          //! unroll
          for (var n = 0u; n < ROUND; n++) {
            put_rows_of_sums(sums_place(strip_row + 16u * m, part, n, ROUND), SUM_PITCH, results[m * VALUE_SHARE + g + n]);
            results[m * VALUE_SHARE + g + n] = none;
          }
        }
        workgroupBarrier();
        for (var e = 0u; e < ROUND_QUADS; e++) {
          let at = e * LANES + lane;
          let place = SUM_START / 2u + own * SUM_PITCH + 4u * at;
          if (PLANES == 2u) {
            if (is_row) {
              let quad = quad_of_round(at, g);
              var sums = sums_at(place);
              if (is_begun) { sums += fade * partial_result(query, span.split, quad); }
              put_partial_result(query, span.split, quad, sums);
            }
          } else {
            put_four_sums(place, sums_at(place) * shrink);
          }
        }
        workgroupBarrier();
        if (PLANES == 1u) {
          //! unroll
          for (var m = 0u; m < TALL; m++) {
            //! unroll
            for (var n = 0u; n < ROUND; n++) {
              results[m * VALUE_SHARE + g + n] =
                rows_of_sums(sums_place(strip_row + 16u * m, part, n, ROUND), SUM_PITCH);
            }
          }
          workgroupBarrier();
        }
      }
      fade = shrink;
      is_begun = true;
    }

    //! unroll
    for (var i = 0u; i < KEY_LOADS; i++) {
      let at = local + i * WORKGROUP;
      keys[i] = key_at(span, base + KEYS + at / QUADS, at % QUADS);
    }
    //! unroll
    for (var c = 0u; c < KEYS; c += 16u) {
      //! spread
      var weights: array<Left, WEIGHT_COUNT>;
      //! unroll
      for (var w = 0u; w < WEIGHT_COUNT; w++) {
        let row = strip_row + w % TALL * 16u;
        weights[w] = left_at(WEIGHT_START + w / TALL * WEIGHT_PLANE + row * WEIGHT_PITCH + c, WEIGHT_PITCH);
      }
      //! unroll
      for (var n = 0u; n < VALUE_SHARE; n++) {
        let place = c * VALUE_PITCH + (part * VALUE_SHARE + n) * 16u;
        let value = right_across_at(place, VALUE_PITCH);
        //! unroll
        for (var m = 0u; m < TALL; m++) {
          if (PLANES == 2u) {
            results[m * VALUE_SHARE + n] =
              multiplied(weights[(PLANES - 1u) * TALL + m], value, results[m * VALUE_SHARE + n]);
          }
          if (KEY_PLANES == 2u) {
            results[m * VALUE_SHARE + n] =
              multiplied(weights[m], right_across_at(VALUE_PLANE + place, VALUE_PITCH), results[m * VALUE_SHARE + n]);
          }
          results[m * VALUE_SHARE + n] = multiplied(weights[m], value, results[m * VALUE_SHARE + n]);
        }
      }
    }
    workgroupBarrier();
  }

  total = sum_of(total, LANES, local);
  var is_exact = true;
  if (IS_CHECKED) {
    if (local < 3u) { put_word(local, 0u); }
    workgroupBarrier();
    if (largest_key >= LARGEST || largest_value >= LARGEST) { put_word(0u, 1u); }
    if (largest_key > 0.0) { put_word(1u, 1u); }
    if (largest_value > 0.0) { put_word(2u, 1u); }
    workgroupBarrier();
    if (largest_key >= SMALL || KEY_PLANES == 1u) { put_word(1u, 0u); }
    if (largest_value >= SMALL) { put_word(2u, 0u); }
    workgroupBarrier();
    is_exact = word_at(0u) + word_at(1u) + word_at(2u) == 0u;
  }
  //! unroll
  for (var g = 0u; g < VALUE_SHARE; g += ROUND) {
    //! unroll
    for (var m = 0u; m < TALL; m++) {
      //! unroll
      for (var n = 0u; n < ROUND; n++) {
        put_rows_of_sums(sums_place(strip_row + 16u * m, part, n, ROUND), SUM_PITCH, results[m * VALUE_SHARE + g + n]);
      }
    }
    workgroupBarrier();
    for (var e = 0u; e < ROUND_QUADS; e++) {
      let at = e * LANES + lane;
      let quad = quad_of_round(at, g);
      if (is_row && is_exact) {
        var sums = sums_at(SUM_START / 2u + own * SUM_PITCH + 4u * at);
        if (PLANES == 2u && is_begun) { sums += fade * partial_result(query, span.split, quad); }
        store_result(query, span.split, quad, sums, most, total);
      }
      if (is_row && !is_exact) { store_from_floats(span, own, quad, oldest, seen, query); }
    }
    workgroupBarrier();
  }
}

// Four elements of a row's result, from floats.
fn store_from_floats(span: Span, row: u32, quad: u32, oldest: u32, seen: u32, query: u32) {
  let index = index_of(span.first + row, span.key_head, span.batch);
  var most = LOWEST;
  var total = 0.0;
  var sum = vec4(0.0);
  for (var key = span.begin; key < span.end; key += 4u) {
    let scores = shown(scores_from_floats(span, row, key), oldest, seen, index, key);
    let raised = max(most, greatest(scores));
    let weights = weights_of(scores, raised);
    let shrink = exp(most - raised);
    most = raised;
    total = total * shrink + weights.x + weights.y + weights.z + weights.w;
    sum *= shrink;
    //! unroll
    for (var e = 0u; e < 4u; e++) { sum += weights[e] * vec4<f32>(value_at(span, key + e, quad)); }
  }
  store_result(query, span.split, quad, sum, most, total);
}
