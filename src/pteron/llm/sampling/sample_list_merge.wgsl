//! loops: ceil(block_count, LANES) + 16 + LISTED * (ceil(block_count * LISTED, LANES) + 9)
//! extent blocks: 4 * block_count * groups[1]
//! extent listed: 2 * LISTED * block_count * groups[1]
//! extent steps: SLOTS
//! extent drawn: 2 * RING * (1 + LISTED) * SLOTS
// The likeliest tokens of all blocks of a row in order, with their log-probabilities under the unchanged logits: NaN if
// one of them is. One workgroup takes one row, before the token of the step is drawn.
import package::wgsl::lib::nan::{LOWEST, is_nan, nan};
import package::wgsl::lib::rows::{LANES, WORKGROUP, row_max, row_sum};
import super::lib::best::{best_of_lanes};
import super::lib::row::{first_block};
import super::lib::slot::{SLOTS, is_used, slot_of};

override RING: u32 = 16u; // draws that are kept
override LISTED: u32 = 20u; // the most ranks
const NONE = 0xffffffffu;

struct Params {
  block_count: u32,
  count: i32, // wanted ranks
}

@group(0) @binding(0) var<storage, read> blocks: array<vec4<f32>>; // as sample_scan writes them
@group(0) @binding(1) var<storage, read> listed: array<vec2<u32>>; // as sample_list writes them
@group(0) @binding(2) var<storage, read> steps: array<i32>; // tokens drawn before; in a batch, the position
@group(0) @binding(3) var<storage, read_write> drawn: array<vec2<i32>>; // RING draws, then LISTED pairs for each
@group(0) @binding(4) var<uniform> params: Params;

@compute @workgroup_size(WORKGROUP)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) local: u32) {
  let first = first_block(group);
  var lane_most = LOWEST;
  var sum = 0.0; // of exp(logit - lane_most), so far
  for (var block = local; block < params.block_count; block += LANES) {
    let looked = blocks[first + block].xy;
    let before = lane_most;
    lane_most = max(lane_most, looked.x);
    sum = sum * exp(before - lane_most) + looked.y * exp(looked.x - lane_most);
  }
  let most = row_max(lane_most, local);
  sum = row_sum(sum * exp(lane_most - most), local);
  let slot = slot_of(group);
  let start = slot * RING * (1u + LISTED) + RING + (u32(steps[slot]) % RING) * LISTED;
  let count = min(u32(params.count), LISTED);
  var last = -LOWEST; // logit and token of the rank before
  var last_token = NONE;
  for (var rank = 0u; rank < count; rank++) {
    var best = LOWEST;
    var best_token = NONE;
    for (var place = local; place < params.block_count * LISTED; place += LANES) {
      let offered = listed[first * LISTED + place];
      let value = bitcast<f32>(offered.x);
      let is_next = rank == 0u || value < last || (value == last && offered.y > last_token);
      let is_there = place % LISTED < count && offered.y != NONE;
      let is_more = value > best || (value == best && offered.y < best_token);
      if (is_there && is_next && is_more) {
        best = value;
        best_token = offered.y;
      }
    }
    let found = best_of_lanes(best, best_token, local);
    workgroupBarrier(); // all lanes have read it before the next rank is written
    last = bitcast<f32>(found.x);
    last_token = found.y;
    if (local == 0u && is_used(group)) {
      let logprob = select(last - most - log(sum), nan(), is_nan(sum));
      drawn[start + rank] = vec2(i32(last_token), bitcast<i32>(logprob));
    }
  }
}
