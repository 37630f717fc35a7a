//! use rows
//! use sample
//! use best
//! loops: ceil(block_count, LANES) + 16
// The token picked from all blocks, and its log-probability under the logits as they came: a NaN where one of
// them is. One workgroup does it all, counts the step, and lets grow what the next one needs: words[place] +=
// growth, each by a lane of its own. What is needed late is loaded first.
const RING = 16u; // draws that are remembered
const GROWTHS = 32u; // no more than LANES

struct Params {
  block_count: u32,
}

@group(0) @binding(0) var<storage, read> blocks: array<vec4<f32>>;
@group(0) @binding(1) var<storage, read> picks: array<vec4<u32>>; // score, token, logit
@group(0) @binding(2) var<storage, read_write> seen: array<u32>;
@group(0) @binding(3) var<storage, read_write> steps: array<i32>; // how many tokens were drawn before
@group(0) @binding(4) var<storage, read_write> token: array<i32>;
@group(0) @binding(5) var<storage, read_write> drawn: array<vec2<i32>>; // a token, the bits of its log-probability
@group(0) @binding(6) var<storage, read> growths: array<vec2<u32>>; // the place, the growth; 0: nothing grows
@group(0) @binding(7) var<storage, read_write> words: array<u32>;
@group(0) @binding(8) var<uniform> params: Params;

// The greatest logit of a block, and the sum of exp(logit - greatest).
fn looked_at(block: u32) -> vec2<f32> { return blocks[block].xy; }

fn remember(picked: u32) { seen[picked] += 1u; }

@compute @workgroup_size(WORKGROUP)
fn main(@builtin(local_invocation_index) local: u32) {
  let step = u32(steps[0]);
  let growth = growths[local % GROWTHS];
  let word = words[growth.x];
  var best = LOWEST;
  var best_block = 0xffffffffu;
  var pick: vec4<u32>;
  var lane_most = LOWEST;
  var sum = 0.0; // of exp(logit - lane_most), so far
  for (var block = local; block < params.block_count; block += LANES) {
    let offered = picks[block];
    let looked = looked_at(block);
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
  if (local < GROWTHS && growth.y != 0u) { words[growth.x] = word + growth.y; }
  if (best_block == won) { // the only lane that has this block
    let value = bitcast<f32>(pick.z) - most - log(sum);
    let logprob = select(value, nan(), is_nan(sum));
    token[0] = i32(pick.y);
    drawn[step % RING] = vec2(i32(pick.y), bitcast<i32>(logprob));
    steps[0] = i32(step + 1u);
    remember(pick.y);
  }
}
