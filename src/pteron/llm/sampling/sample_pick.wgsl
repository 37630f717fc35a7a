//! loops: ceil(block, LANES)
//! extent logits: base + vocabulary * groups[1]
//! extent seen: vocabulary
//! extent blocks: 4 * block_count * groups[1]
//! extent limit: 2 * groups[1] - 1
//! extent steps: SLOTS
//! extent picks: 4 * groups[0] * groups[1]
//! extent raw: base + vocabulary * groups[1]
// Per block, the token whose log-probability + Gumbel noise is the greatest: the greatest of all blocks is a
// draw from the softmax of logits / temperature. One workgroup takes one block.
import package::wgsl::lib::nan::{LOWEST};
import package::wgsl::lib::rows::{LANES, WORKGROUP};
import super::lib::best::{best_of_lanes};
import super::lib::likeliest::{likeliest};
import super::lib::noise::{gumbel};
import super::lib::row::{base_of, first_block, row_of};
import super::lib::sample::{finite, penalised, place};
import super::lib::settings::{FIRST, is_picked, log_min_p_of, seed_of, setting, temperature_of};
import super::lib::slot::{SLOTS, slot_of};

alias X = f32;
alias Y = f32;

struct Params {
  vocabulary: u32,
  base: u32, // start of the last row of logits
  block: u32, // tokens per workgroup
  block_count: u32,
  seed: i32,
  temperature: i32, // the bits of an f32
  log_min_p: i32, // the bits of an f32, no less than -REACH
  penalty: i32, // the bits of an f32
}

@group(0) @binding(0) var<storage, read> logits: array<X>;
@group(0) @binding(1) var<storage, read> seen: array<u32>;
@group(0) @binding(2) var<storage, read> blocks: array<vec4<f32>>;
@group(0) @binding(3) var<storage, read> limit: array<u32>;
@group(0) @binding(4) var<storage, read> steps: array<i32>; // tokens drawn before; in a batch, the position
@group(0) @binding(5) var<storage, read_write> picks: array<vec4<u32>>; // score, token, logit
@group(0) @binding(6) var<storage, read> raw: array<Y>; // unchanged logits, if those above are changed
@group(0) @binding(7) var<uniform> params: Params;

fn was_seen(token: u32) -> bool {
  @if(seen) return seen[token] != 0u;
  @else return false;
}

// The last place that is kept.
fn last_place(row: u32) -> u32 {
  @if(limit) return limit[2u * row];
  @else return 0xffffffffu;
}

fn logit_of(base: u32, token: u32) -> f32 {
  @if(raw) return finite(f32(raw[base + token]));
  @else return finite(f32(logits[base + token]));
}

fn step_of(group: vec3<u32>) -> u32 {
  @if(settings) return u32(steps[slot_of(group)] - setting(group, FIRST));
  @else return u32(steps[0]);
}

@compute @workgroup_size(WORKGROUP)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) local: u32) {
  if (is_picked(group)) { return; }
  let most = likeliest(group, local);
  let base = base_of(group);
  let temperature = temperature_of(group);
  let least = temperature * log_min_p_of(group); // below `most`: quotients stay within reach
  let last = last_place(row_of(group));
  let seed = seed_of(group);
  let step = step_of(group);
  let first = group.x * params.block;
  let end = min(first + params.block, params.vocabulary);
  var best = LOWEST;
  var best_token = first;
  for (var token = first + local; token < end; token += LANES) {
    let value = penalised(f32(logits[base + token]), was_seen(token), bitcast<f32>(params.penalty));
    if (value - most < least || place(value) > last) { continue; }
    let score = (value - most) / temperature + gumbel(seed, step, token);
    if (score > best) {
      best = score;
      best_token = token;
    }
  }
  let picked = best_of_lanes(best, best_token, local);
  if (local == 0u) {
    picks[first_block(group) + group.x] = vec4(picked, bitcast<u32>(logit_of(base, picked.y)), 0u);
  }
}
