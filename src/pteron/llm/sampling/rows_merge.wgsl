//! use rows
//! use sample
//! use best
//! use texts_of_rows
//! use slots_of_rows
//! loops: ceil(block_count, LANES) + 24
//! extent blocks: 4 * block_count * groups[1]
//! extent picks: 4 * block_count * groups[1]
//! extent seen: vocabulary * SLOTS
//! extent tokens: SLOTS
//! extent positions: SLOTS
//! extent drawn: 2 * RINGED * SLOTS
// As sample_merge.wgsl, for several texts: the token of each becomes the next of its slot, and is remembered with the
// position of the token before it, modulo RING; then the slot's position grows by one. One workgroup takes one row,
// and one of nobody's draws nothing.
const RING = 16u; // draws that are remembered
const RINGED = 16u; // pairs of words of a slot: its draws, and its lists behind them

struct Params {
  block_count: u32,
  base: u32, // as in the kernels beside it, which this one does not look at
  vocabulary: u32,
}

@group(0) @binding(0) var<storage, read> blocks: array<vec4<f32>>;
@group(0) @binding(1) var<storage, read> picks: array<vec4<u32>>; // score, token, logit
@group(0) @binding(2) var<storage, read_write> seen: array<u32>;
@group(0) @binding(3) var<storage, read_write> tokens: array<i32>;
@group(0) @binding(4) var<storage, read_write> positions: array<i32>;
@group(0) @binding(5) var<storage, read_write> drawn: array<vec2<i32>>; // a token, the bits of its log-probability
@group(0) @binding(6) var<uniform> params: Params;

fn remember(place: u32) { seen[place] += 1u; }

@compute @workgroup_size(WORKGROUP)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) local: u32) {
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
  if (best_block == won && is_used(group)) { // the only lane that has this block
    let slot = slot_of(group);
    let position = u32(max(positions[slot], 0));
    let value = bitcast<f32>(pick.z) - most - log(sum);
    let logprob = select(value, nan(), is_nan(sum));
    tokens[slot] = i32(pick.y);
    drawn[slot * RINGED + position % RING] = vec2(i32(pick.y), bitcast<i32>(logprob));
    positions[slot] = i32(position + 1u);
    remember(slot * params.vocabulary + pick.y);
  }
}
