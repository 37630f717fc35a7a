//! loops: ceil(block, LANES) + 24
//! extent logits: base + vocabulary * groups[1]
//! extent seen: vocabulary
//! extent blocks: 4 * groups[0] * groups[1]
//! extent picks: 4 * groups[0] * groups[1]
//! extent changed_logits: base + vocabulary * groups[1]
// A scan of the logits. Per block: the greatest logit, the sum of exp(logit - greatest), NaN if one is, and the
// greatest after the repetition penalty, or of the changed logits. Greedy drawing picks the first token that has it.
// One workgroup takes one block of adjacent tokens.
import package::wgsl::lib::nan::{LOWEST, is_nan, nan};
import package::wgsl::lib::rows::{LANES, WORKGROUP, row_max, row_sum};
import super::lib::best::{best_of_lanes};
import super::lib::row::{base_of, first_block};
import super::lib::sample::{finite, penalised};

alias X = f32;
const AHEAD = 8u; // logits that a lane loads before it uses the first of them

struct Params {
  vocabulary: u32,
  base: u32, // start of the last row of logits
  block: u32, // tokens per workgroup
  penalty: i32, // the bits of an f32
}

@group(0) @binding(0) var<storage, read> logits: array<X>;
@group(0) @binding(1) var<storage, read> seen: array<u32>;
@group(0) @binding(2) var<storage, read_write> blocks: array<vec4<f32>>;
@group(0) @binding(3) var<storage, read_write> picks: array<vec4<u32>>; // as sample_pick writes them
@group(0) @binding(4) var<storage, read> changed_logits: array<f32>; // written by sample_change, if that is launched
@group(0) @binding(5) var<uniform> params: Params;

fn was_seen(token: u32) -> bool {
  @if(seen) return seen[token] != 0u;
  @else return false;
}

// The value that a token is drawn by; is_here: the token exists.
fn drawn_from(base: u32, value: f32, token: u32, is_here: bool) -> f32 {
  @if(changed_logits) return changed_logits[base + min(token, params.vocabulary - 1u)];
  @else return penalised(value, is_here && was_seen(token), bitcast<f32>(params.penalty));
}

// The logit of (a score, its token); if nothing changes logits, the score itself.
fn logit_of(base: u32, best: vec2<u32>) -> f32 {
  @if(seen || changed_logits) return finite(f32(logits[base + best.y]));
  @else return bitcast<f32>(best.x);
}

// The greatest score of all lanes, returned to all of them; lane 0 writes the pick.
fn greatest(base: u32, score: f32, token: u32, block: u32, local: u32) -> f32 {
  @if(picks) {
    let best = best_of_lanes(score, token, local);
    if (local == 0u) { picks[block] = vec4(best, bitcast<u32>(logit_of(base, best)), 0u); }
    return bitcast<f32>(best.x);
  }
  @else return row_max(score, local);
}

// The greatest logit of all lanes; if nothing changes logits, the greatest score.
fn greatest_logit(most: f32, most_penalised: f32, local: u32) -> f32 {
  @if(seen || changed_logits) return row_max(most, local);
  @else return most_penalised;
}

@compute @workgroup_size(WORKGROUP)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) local: u32) {
  let base = base_of(group);
  let block = first_block(group) + group.x;
  let first = group.x * params.block;
  let end = min(first + params.block, params.vocabulary);
  var lane_most = LOWEST;
  var sum = 0.0; // of exp(logit - lane_most), so far
  var most_penalised = LOWEST;
  var likeliest = first;
  for (var start = first + local; start < end; start += LANES * AHEAD) {
    var values: array<f32, AHEAD>;
    //! unroll
    for (var i = 0u; i < AHEAD; i++) {
      values[i] = f32(logits[base + min(start + i * LANES, end - 1u)]);
    }
    let before = lane_most;
    //! unroll
    for (var i = 0u; i < AHEAD; i++) {
      let token = start + i * LANES;
      let is_here = token < end;
      lane_most = max(lane_most, select(LOWEST, finite(values[i]), is_here));
      let offered = drawn_from(base, values[i], token, is_here);
      let is_more = is_here && offered > most_penalised;
      most_penalised = select(most_penalised, offered, is_more);
      likeliest = select(likeliest, token, is_more);
    }
    sum *= exp(before - lane_most);
    //! unroll
    for (var i = 0u; i < AHEAD; i++) {
      let weight = select(exp(finite(values[i]) - lane_most), nan(), is_nan(values[i]));
      sum += select(0.0, weight, start + i * LANES < end);
    }
  }
  most_penalised = greatest(base, most_penalised, likeliest, block, local);
  let most = greatest_logit(lane_most, most_penalised, local);
  sum = row_sum(sum * exp(lane_most - most), local);
  if (local == 0u) { blocks[block] = vec4(most, sum, most_penalised, 0.0); }
}
