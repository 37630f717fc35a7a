//! use likeliest
//! use noise
//! use best
//! loops: ceil(block, LANES)
//! extent logits: base + vocabulary
//! extent seen: vocabulary
//! extent blocks: 4 * block_count
//! extent limit: 1
//! extent steps: 1
//! extent picks: 4 * groups[0]
//! extent raw: base + vocabulary
// Per block, the token whose log-probability + Gumbel noise is the greatest: the greatest of all blocks is a
// draw from the softmax of logits / temperature. One workgroup takes one block.
alias X = f32;
alias Y = f32;

struct Params {
  vocabulary: u32,
  base: u32, // where the last row of logits starts
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
@group(0) @binding(4) var<storage, read> steps: array<i32>; // how many tokens were drawn before
@group(0) @binding(5) var<storage, read_write> picks: array<vec4<u32>>; // score, token, logit
@group(0) @binding(6) var<storage, read> raw: array<Y>; // logits as they came, where those above were changed
@group(0) @binding(7) var<uniform> params: Params;

fn was_seen(token: u32) -> bool { return seen[token] != 0u; }
fn last_place() -> u32 { return limit[0]; }
fn logit_of(token: u32) -> f32 { return finite(f32(raw[params.base + token])); }

@compute @workgroup_size(WORKGROUP)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) local: u32) {
  let most = likeliest(local);
  let temperature = bitcast<f32>(params.temperature);
  let least = temperature * bitcast<f32>(params.log_min_p); // below `most`: quotients stay within reach
  let last = last_place();
  let first = group.x * params.block;
  let end = min(first + params.block, params.vocabulary);
  var best = LOWEST;
  var best_token = first;
  for (var token = first + local; token < end; token += LANES) {
    let value = penalised(f32(logits[params.base + token]), was_seen(token), bitcast<f32>(params.penalty));
    if (value - most < least || place(value) > last) { continue; }
    let score = (value - most) / temperature + gumbel(u32(params.seed), u32(steps[0]), token);
    if (score > best) {
      best = score;
      best_token = token;
    }
  }
  let picked = best_of_lanes(best, best_token, local);
  if (local == 0u) {
    picks[group.x] = vec4(picked, bitcast<u32>(logit_of(picked.y)), 0u);
  }
}
