//! loops: ceil(block_count, LANES) + 24
//! extent blocks: 4 * block_count * groups[1]
//! extent picks: 4 * block_count * groups[1]
//! extent seen: vocabulary * SLOTS
//! extent steps: SLOTS
//! extent token: SLOTS
//! extent drawn: 2 * RINGED * SLOTS
// The token picked from all blocks of a row, and its log-probability under the unchanged logits: NaN if one of them is.
// The draw is stored at its step modulo RING, and the step is counted. For one sequence, the kernel also advances the
// parameters of the next step: words[place] += growth, one lane each. Values that are needed late are loaded first.
// One workgroup takes one row; an unused row draws nothing.
import package::wgsl::lib::nan::{LOWEST, is_nan, nan};
import package::wgsl::lib::rows::{LANES, WORKGROUP, row_max, row_sum};
import super::lib::best::{best_of_lanes};
import super::lib::row::{first_block};
import super::lib::slot::{SLOTS, is_used, slot_of};

override RING: u32 = 16u; // draws that are kept
override RINGED: u32 = 16u; // pairs of words per slot: its draws, then its lists
override GROWTHS: u32 = 32u; // no more than LANES

struct Params {
  block_count: u32,
  vocabulary: u32,
}

@group(0) @binding(0) var<storage, read> blocks: array<vec4<f32>>;
@group(0) @binding(1) var<storage, read> picks: array<vec4<u32>>; // score, token, logit
@group(0) @binding(2) var<storage, read_write> seen: array<u32>;
@group(0) @binding(3) var<storage, read_write> steps: array<i32>; // tokens drawn before; in a batch, the position
@group(0) @binding(4) var<storage, read_write> token: array<i32>;
@group(0) @binding(5) var<storage, read_write> drawn: array<vec2<i32>>; // a token, the bits of its log-probability
@group(0) @binding(6) var<storage, read> growths: array<vec2<u32>>; // place, growth; 0: nothing grows
@group(0) @binding(7) var<storage, read_write> words: array<u32>;
@group(0) @binding(8) var<uniform> params: Params;

@compute @workgroup_size(WORKGROUP)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) local: u32) {
  let slot = slot_of(group);
  let step = u32(max(steps[slot], 0));
  @if(growths) let growth = growths[local % GROWTHS];
  @if(growths) let word = words[growth.x];
  let first = first_block(group);
  var best = LOWEST;
  var best_block = 0xffffffffu;
  var pick: vec4<u32>;
  var lane_most = LOWEST;
  var sum = 0.0; // of exp(logit - lane_most), so far
  for (var block = local; block < params.block_count; block += LANES) {
    let offered = picks[first + block];
    let looked = blocks[first + block].xy;
    let score = bitcast<f32>(offered.x);
    if (score > best || best_block == 0xffffffffu) {
      best = score;
      best_block = block;
      pick = offered;
    }
    let before = lane_most;
    lane_most = max(lane_most, looked.x);
    sum = sum * exp(before - lane_most) + looked.y * exp(looked.x - lane_most);
  }
  let won = best_of_lanes(best, best_block, local).y; // of equal scores that of the first block
  let most = row_max(lane_most, local);
  sum = row_sum(sum * exp(lane_most - most), local);
  @if(growths) if (local < GROWTHS && growth.y != 0u) { words[growth.x] = word + growth.y; }
  if (best_block == won && is_used(group)) { // the only lane that has this block
    let value = bitcast<f32>(pick.z) - most - log(sum);
    let logprob = select(value, nan(), is_nan(sum));
    token[slot] = i32(pick.y);
    drawn[slot * RINGED + step % RING] = vec2(i32(pick.y), bitcast<i32>(logprob));
    steps[slot] = i32(step + 1u);
    @if(seen) seen[slot * params.vocabulary + pick.y] += 1u;
  }
}
