//! loops: ceil(WORDS, STEP) + WIDE * (1 + TILE)
//! extent x: 4 * WORD_QUADS * TILE * WORDS
//! extent weights_a: 4 * ROOM
//! extent weights_b: 4 * ROOM
//! extent weights_c: 4 * ROOM
//! extent weights_d: 4 * ROOM
// A product with weights of 4 bits (lib/nibbles_in_place.wgsl) or 8 (lib/bytes_in_place.wgsl) without barriers, for
// software adapters. Weights and x are uniform arrays: software adapters load a lane's element from a uniform array
// eight times as fast as from a storage buffer.
//
// One invocation computes TILE rows, from first_row up to the last, of ACROSS columns in each of four arrays. Four adjacent
// invocations have adjacent columns; each loads one of four x, and all read them by subgroup operations.
//
// An array holds BLOCKS blocks of four columns: first their words, [block][word][column], then their scales and, if
// groups have them, their minima, [block][group][column]. The first column of array a is first_column + a · 4 · BLOCKS.
import super::lib::q4_params::{params};
import super::lib::q4_result::{store};
@if(IN_BYTES) import super::lib::bytes_in_place::{WORD_QUADS, grown, shrinkage};
@else import super::lib::nibbles_in_place::{WORD_QUADS, grown, shrinkage};
import package::wgsl::lib::lanes::{of_four_lanes};
import package::wgsl::lib::index::{flat_index};

const WORKGROUP = 8u; // the lanes of a vector, or of two
override IN_BYTES: bool = false; // whether weights have eight bits
override TILE: u32 = 4u;
override WORDS: u32 = 8u; // words per column
override GROUP: u32 = 4u; // words that share a scale
override STEP: u32 = 4u; // words that are added up before the scale is applied; they belong to one group
override BLOCKS: u32 = 1u;
override ACROSS: u32 = 1u; // blocks per array and invocation
const WIDE = 4u * ACROSS; // columns per invocation: column c is in array c % 4, block c / 4
const GROUPS = (WORDS + GROUP - 1u) / GROUP;
override PER_GROUP: u32 = 1u; // numbers per group: a scale, and perhaps a minimum
const ROOM = BLOCKS * (WORDS + PER_GROUP * GROUPS);

@group(0) @binding(9) var<uniform> x: array<vec4<f32>, TILE * WORDS * WORD_QUADS>;
@group(0) @binding(10) var<uniform> weights_a: array<vec4<u32>, ROOM>;
@group(0) @binding(11) var<uniform> weights_b: array<vec4<u32>, ROOM>;
@group(0) @binding(12) var<uniform> weights_c: array<vec4<u32>, ROOM>;
@group(0) @binding(13) var<uniform> weights_d: array<vec4<u32>, ROOM>;

fn load(array: u32, at: u32, column: u32) -> u32 {
  switch (array) {
    case 0u: { return weights_a[at][column]; }
    case 1u: { return weights_b[at][column]; }
    case 2u: { return weights_c[at][column]; }
    default: { return weights_d[at][column]; }
  }
}

// Four x, each divided by the factor of its weight (see `grown`); this lane loads one of them.
fn load_quad(at: u32, lane: u32) -> vec4<f32> { return of_four_lanes(x[at][lane] * shrinkage(lane)); }

// The sum of four x that are divided so.
fn total_of(quad: vec4<f32>) -> f32 {
  return dot(quad, 1.0 / vec4(shrinkage(0u), shrinkage(1u), shrinkage(2u), shrinkage(3u)));
}

@compute @workgroup_size(WORKGROUP)
fn main(
  @builtin(global_invocation_id) id: vec3<u32>,
  @builtin(num_workgroups) groups: vec3<u32>,
  @builtin(subgroup_invocation_id) subgroup_lane: u32,
) {
  let lane = subgroup_lane % 4u;
  let i = flat_index(id, groups);
  let column = i % 4u;
  let first_block = i / 4u * ACROSS;
  var blocks = array<u32, ACROSS>();
  //! unroll
  for (var b = 0u; b < ACROSS; b++) { blocks[b] = min(first_block + b, BLOCKS - 1u); }
  var sums = array<array<f32, WIDE>, TILE>();
  for (var word = 0u; word < WORDS; word += STEP) {
    // All loads come first, so that they overlap.
    var words = array<array<u32, WIDE>, STEP>();
    //! unroll
    for (var s = 0u; s < STEP; s++) {
      //! unroll
      for (var c = 0u; c < WIDE; c++) {
        words[s][c] = load(c % 4u, blocks[c / 4u] * WORDS + word + s, column);
      }
    }
    var scale = array<f32, WIDE>();
    //! unroll
    for (var c = 0u; c < WIDE; c++) {
      scale[c] = bitcast<f32>(load(c % 4u, BLOCKS * WORDS + blocks[c / 4u] * GROUPS + word / GROUP, column));
    }
    var least = array<f32, WIDE>();
    if (PER_GROUP == 2u) {
      //! unroll
      for (var c = 0u; c < WIDE; c++) {
        let at = BLOCKS * (WORDS + GROUPS) + blocks[c / 4u] * GROUPS + word / GROUP;
        least[c] = bitcast<f32>(load(c % 4u, at, column));
      }
    }
    var part = array<array<f32, WIDE>, TILE>();
    var totals = array<f32, TILE>(); // of x
    //! unroll
    for (var s = 0u; s < STEP; s++) {
      var first_x = array<vec4<f32>, TILE>();
      var last_x = array<vec4<f32>, TILE>();
      //! unroll
      for (var t = 0u; t < TILE; t++) {
        let at = WORD_QUADS * (t * WORDS + word + s);
        first_x[t] = load_quad(at, lane);
        if (WORD_QUADS == 2u) { last_x[t] = load_quad(at + 1u, lane); }
        if (PER_GROUP == 2u) { totals[t] += total_of(first_x[t]) + total_of(last_x[t]); }
      }
      //! unroll
      for (var c = 0u; c < WIDE; c++) {
        let first = grown(words[s][c], 0u);
        let last = grown(words[s][c], 1u);
        //! unroll
        for (var t = 0u; t < TILE; t++) {
          var sum = first_x[t] * first;
          if (WORD_QUADS == 2u) { sum += last_x[t] * last; }
          part[t][c] += (sum.x + sum.y) + (sum.z + sum.w);
        }
      }
    }
    //! unroll
    for (var t = 0u; t < TILE; t++) {
      //! unroll
      for (var c = 0u; c < WIDE; c++) {
        sums[t][c] += scale[c] * part[t][c];
        if (PER_GROUP == 2u) { sums[t][c] += least[c] * totals[t]; }
      }
    }
  }
  // Drivers compile for seconds where there is a copy of `store` for each sum. Sums are picked by comparisons, and a bound
  // that is not known when compiled keeps the loop.
  for (var c = 0u; c < min(WIDE, params.columns); c++) {
    var column_sums = array<f32, TILE>();
    //! unroll
    for (var other = 0u; other < WIDE; other++) {
      //! unroll
      for (var t = 0u; t < TILE; t++) { column_sums[t] = select(column_sums[t], sums[t][other], c == other); }
    }
    let block = first_block + c / 4u;
    let n = params.first_column + 4u * (c % 4u * BLOCKS + block) + column;
    if (block < BLOCKS && n < params.columns) {
      for (var row = 0u; row < min(TILE, params.rows - params.first_row); row++) {
        var sum = 0.0;
        //! unroll
        for (var t = 0u; t < TILE; t++) { sum = select(sum, column_sums[t], row == t); }
        store(0u, params.first_row + row, n, sum);
      }
    }
  }
}
