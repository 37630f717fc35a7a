//! loops: FETCH * (1 + ROUNDS) + ROWS
//! loops: ROUNDS * (1 + STEPS * (1 + ROWS * (1 + COLUMNS * 4)) + ROWS * (8 + SPLIT))
//! extent scales: MATRICES * columns * GROUPS
// A product with 4-bit or 8-bit weights for few rows m, in integer arithmetic: Σ x[m, k] · w[n, k] · scale[n, k / group],
// times a factor per row. Rows of x are [m][k], or attention's unmerged splits (`parts`, lib/x_source_splits.wgsl); with a
// `gain`, the product is that of their RMS norm, and the factor is the norm's. Weights are [n][k], read once, in chunks of
// 32 k (lib/chunk_nibbles.wgsl, lib/chunk_bytes.wgsl); scales are [n][group]. Rows may have different matrices
// (lib/experts.wgsl).
//
// A workgroup converts ROWS rows of x to integers in workgroup memory: planes of 8-bit digits, whose sum with weights 1,
// 2^8 and 2^16 is x in units of its chunk (lib/digits.wgsl, lib/planes.wgsl), or int8 with a zero point
// (lib/planes_int8.wgsl). The sum of a chunk is exact.
//
// A bundle is COLUMNS adjacent columns n. SPLIT subgroups share a bundle, with STEPS chunks per lane. A workgroup
// computes BUNDLES bundles at a time, in ROUNDS rounds, and loads the weights of the next round in advance.
//
// lib/q4_result.wgsl has the bias and the residual (`added`) and stores (`put`). The value is complete at the end of main,
// where an epilogue goes; other kernels of these weights have theirs in `result` there.
import super::lib::q4_params::{params};
import super::lib::q4_result::{X, added, put};
@if(q_out) import super::lib::q4_rope::{angle, row_of_pair};
import super::lib::experts::{KEPT, MATRICES, experts, first_row};
import super::lib::x_planes::{planes, units};
@if(IS_INT8) import super::lib::planes_int8::{PLANES, factor, load_planes, zero_point};
@else import super::lib::planes::{PLANES, factor, load_planes, zero_point};
@if(IN_BYTES) import super::lib::chunk_bytes::{Chunk, Scales, add_chunk, chunk_start, in_order, load_chunk, load_scales};
@else import super::lib::chunk_nibbles::{Chunk, Scales, add_chunk, chunk_start, in_order, load_chunk, load_scales};
import super::lib::silu::{silu};

override SUBGROUP: u32 = 32u; // the width, which all subgroups of the device have
override SPLIT: u32 = 1u;
override BUNDLES: u32 = 8u;
override COLUMNS: u32 = 2u; // 1, 2 or 4
override ROUNDS: u32 = 1u;
override ROWS: u32 = 1u; // of x, per workgroup
override QUADS: u32 = 16u; // vec4s of a row of x
override CHUNKS: u32 = 2u; // chunks per row of x
override EACH: u32 = CHUNKS; // chunks per row of weights: parts of x may be multiplied with different matrices
override PITCH: u32 = 2u; // chunks from one row of weights to the next
override GROUP: u32 = 2u; // chunks that share a scale
override IS_INT8: bool = false; // x is int8 with a zero point, not digits
override IN_BYTES: bool = false; // whether weights have eight bits
override HAS_TWO_SCALES: bool = false; // whether chunks of these have a scale for each half
override IS_GATED: bool = false; // columns are gates, then as many values (OTHERS): out is silu(gate) · value
@if(q_out) const IS_ROTATED = true; // columns are pairs that RoPE rotates (lib/q4_rope.wgsl)
@else const IS_ROTATED = false;
override EPS: f32 = 1e-5; // of the norm
@if(HAS_TWO_SCALES) const GROUPS = 2u * EACH;
@else const GROUPS = (EACH + GROUP - 1u) / GROUP;
const SUBGROUPS = SPLIT * BUNDLES;
const WORKGROUP = SUBGROUP * SUBGROUPS;
const STEPS = (CHUNKS + SPLIT * SUBGROUP - 1u) / (SPLIT * SUBGROUP);
const CELLS = STEPS * SPLIT * SUBGROUP; // chunks per row of x in workgroup memory; those past the end are zeros
const PASSES = (4u * CELLS + WORKGROUP - 1u) / WORKGROUP; // an invocation converts eight elements of a row in each
const FETCH = STEPS * (1 + COLUMNS) + ROWS; // iterations of `fetch`
const IS_PAIRED = IS_GATED || IS_ROTATED; // a bundle has COLUMNS / 2 pairs: first all left columns, then all right ones
const HALF = (COLUMNS + 1u) / 2u;

@group(0) @binding(2) var<storage, read> scales: array<f32>;

// Partial sums of the subgroups that share a bundle, of two rounds.
var<workgroup> partials: array<f32, 2u * ROWS * SUBGROUPS * COLUMNS>;

fn partial_at(m: u32, column: u32, round: u32, bundle: u32) -> u32 {
  return (((round % 2u * ROWS + m) * BUNDLES + bundle) * COLUMNS + column) * SPLIT;
}

// The first row of the matrix that a chunk of row m is multiplied with: each part of x, EACH chunks, has its own if there are
// `shares`.
fn matrix_of(m: u32, chunk: u32) -> u32 {
  @if(shares) return min(u32(experts[m * KEPT + chunk / EACH]), MATRICES - 1u) * params.columns;
  @else return first_row(m);
}

// The two columns of a pair: a gate, and its value, which follows the gates of all matrices. lib/q4_rope.wgsl has those of a
// pair that is rotated.
@if(!q_out)
fn row_of_pair(pair: u32, second: u32) -> u32 { return pair + second * MATRICES * (params.columns / 2u); }

// The row of weights for a column of a bundle.
fn row_of(bundle: u32, column: u32) -> u32 {
  if (!IS_PAIRED) { return min(bundle * COLUMNS + column, params.columns - 1u); }
  return row_of_pair(min(bundle * HALF + column % HALF, params.columns / 2u - 1u), column / HALF);
}

struct Bundle {
  chunks: array<Chunk, STEPS * COLUMNS>,
  scales: array<Scales, STEPS * COLUMNS>,
  added: array<f32, ROWS>,
  angles: array<vec2<f32>, ROWS>,
}

// A lane's inputs for a bundle: its chunks of every column, and the bias and angle of the column it will store.
fn fetch(bundle: u32, m_first: u32, part: u32, lane: u32) -> Bundle {
  var found: Bundle;
  //! unroll
  for (var step = 0u; step < STEPS; step++) {
    let chunk = min((step * SPLIT + part) * SUBGROUP + lane, CHUNKS - 1u);
    let matrix = matrix_of(m_first, chunk);
    let place = select(chunk % EACH, chunk, EACH == CHUNKS);
    //! unroll
    for (var column = 0u; column < COLUMNS; column++) {
      let row = matrix + row_of(bundle, column);
      found.chunks[step * COLUMNS + column] = load_chunk(row * PITCH + place);
      found.scales[step * COLUMNS + column] = load_scales(row, place);
    }
  }
  let row = row_of(bundle, column_of(lane));
  for (var m = 0u; m < ROWS; m++) {
    found.added[m] = added(m_first + m, row);
    @if(q_out) { found.angles[m] = angle(m_first + m, row); }
  }
  return found;
}

// The column of a bundle whose sum `total` returns on a lane.
fn column_of(lane: u32) -> u32 {
  return select(select(0u, lane % 2u, COLUMNS == 2u), lane % 2u * 2u + lane / 2u % 2u, COLUMNS == 4u);
}

// One step of two sums over a subgroup with one shuffle: lanes with `bit` continue with b, the others with a.
fn either(a: f32, b: f32, bit: u32, lane: u32) -> f32 {
  let is_b = (lane & bit) != 0u;
  return select(a, b, is_b) + subgroupShuffleXor(select(b, a, is_b), bit);
}

// The sum over a subgroup, for the column column_of(lane).
fn total(sums: array<f32, COLUMNS>, lane: u32) -> f32 {
  var sum = sums[0];
  if (COLUMNS == 2u) { sum = either(sums[0], sums[1u % COLUMNS], 1u, lane); }
  if (COLUMNS == 4u) {
    let first = either(sums[0], sums[2u % COLUMNS], 1u, lane);
    sum = either(first, either(sums[1u % COLUMNS], sums[3u % COLUMNS], 1u, lane), 2u, lane);
  }
  for (var bit = COLUMNS; bit < SUBGROUP; bit *= 2u) { sum += subgroupShuffleXor(sum, bit); }
  return sum;
}

@compute @workgroup_size(WORKGROUP)
fn main(
  @builtin(workgroup_id) group: vec3<u32>,
  @builtin(num_workgroups) groups: vec3<u32>,
  @builtin(local_invocation_index) local: u32,
) {
  let lane = local % SUBGROUP;
  let part = local / SUBGROUP % SPLIT;
  let bundle_index = local / (SUBGROUP * SPLIT);
  let m_first = group.x * ROWS; // workgroups that read the same weights follow one another
  var bundle = (group.y + group.z * groups.y) * ROUNDS * BUNDLES + bundle_index;
  var held = fetch(bundle, m_first, part, lane);
  load_planes(m_first, local);
  workgroupBarrier();
  var factors = array<f32, ROWS>();
  var zeros = array<i32, ROWS>();
  for (var m = 0u; m < ROWS; m++) {
    factors[m] = factor(m);
    zeros[m] = zero_point(m);
  }
  for (var round = 0u; round < ROUNDS; round++) {
    let following = bundle + select(0u, BUNDLES, round + 1u < ROUNDS);
    var next: Bundle;
    if (ROUNDS > 1u) { next = fetch(following, m_first, part, lane); }
    var sums = array<array<f32, COLUMNS>, ROWS>();
    //! unroll
    for (var step = 0u; step < STEPS; step++) {
      let chunk = (step * SPLIT + part) * SUBGROUP + lane;
      //! unroll
      for (var m = 0u; m < ROWS; m++) {
        let unit = units[m * CELLS + chunk];
        var halves = array<vec4<u32>, 2u * PLANES>();
        //! unroll
        for (var i = 0u; i < 2u * PLANES; i++) { halves[i] = planes[(m * 2u * PLANES + i) * CELLS + chunk]; }
        //! unroll
        for (var column = 0u; column < COLUMNS; column++) {
          let at = step * COLUMNS + column;
          sums[m][column] = add_chunk(sums[m][column], held.chunks[at], held.scales[at], halves, unit, zeros[m]);
        }
      }
    }
    var totals = array<f32, ROWS>();
    //! unroll
    for (var m = 0u; m < ROWS; m++) {
      totals[m] = total(sums[m], lane);
      if (SPLIT > 1u && lane < COLUMNS) { partials[partial_at(m, column_of(lane), round, bundle_index) + part] = totals[m]; }
    }
    if (SPLIT > 1u) { workgroupBarrier(); } // rounds use two places in turns, so reading ends before the next but one
    //! unroll
    for (var m = 0u; m < ROWS; m++) {
      var sum = totals[m];
      if (SPLIT > 1u) {
        let first = partial_at(m, column_of(lane), round, bundle_index);
        sum = 0.0;
        for (var i = 0u; i < SPLIT; i++) { sum += partials[first + i]; }
      }
      let column = column_of(lane);
      var n = bundle * COLUMNS + column;
      var is_stored = lane < COLUMNS && part == 0u && n < params.columns;
      var value = sum * factors[m] + held.added[m];
      if (IS_PAIRED) { // the adjacent lane has the other column of the pair
        let other = subgroupShuffleXor(value, 1u);
        let pair = bundle * HALF + column % HALF;
        is_stored = lane < COLUMNS && part == 0u && pair < params.columns / 2u;
        if (IS_GATED) {
          value = silu(value) * other;
          is_stored = is_stored && column < HALF;
          n = pair;
        } else {
          let by = held.angles[m];
          value = fma(value, by.x, select(other * by.y, 0.0, by.y == 0.0));
          n = row_of(bundle, column);
        }
      }
      if (is_stored) { put(m_first + m, n, value); }
    }
    bundle = following;
    held = next;
  }
}
