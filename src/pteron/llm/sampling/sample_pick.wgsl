//! use rows
//! use sample
// Per block, the token whose logit / temperature + Gumbel noise is the greatest: the greatest of all
// blocks is a draw from the softmax. At temperature 0 there is no noise, and the first of the greatest
// logits wins. One workgroup takes one block.
alias X = f32;
alias I = u32;
const GREEDY = false;

struct Params {
  vocabulary: u32,
  base: u32, // where the last row of logits starts
  block: u32, // tokens per workgroup
  block_count: u32,
  seed: i32,
  step: i32,
  temperature: f32,
  min_p: f32,
  penalty: f32,
}

@group(0) @binding(0) var<storage, read> logits: array<X>;
@group(0) @binding(1) var<storage, read> seen: array<I>;
@group(0) @binding(2) var<storage, read> blocks: array<vec4<f32>>;
@group(0) @binding(3) var<storage, read> threshold: array<f32>;
@group(0) @binding(4) var<storage, read_write> picks: array<vec2<f32>>;
@group(0) @binding(5) var<uniform> params: Params;

var<workgroup> best_values: array<f32, WORKGROUP>;
var<workgroup> best_tokens: array<u32, WORKGROUP>;

fn was_seen(token: u32) -> bool { return seen[token] != 0u; }
fn least_kept() -> f32 { return threshold[0]; }

fn score(token: u32, value: f32) -> f32 {
  if (GREEDY) { return value; }
  return value / params.temperature - log(-log(uniform_noise(u32(params.seed), u32(params.step), token)));
}

@compute @workgroup_size(WORKGROUP)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) local: u32) {
  var least = least_kept();
  if (params.min_p > 0.0) {
    var most = -3.4028234e38;
    for (var block = 0u; block < params.block_count; block++) { most = max(most, blocks[block].z); }
    least = max(least, most + params.temperature * log(params.min_p));
  }
  let first = group.x * params.block;
  let end = min(first + params.block, params.vocabulary);
  var best = -3.4028234e38;
  var best_token = first;
  for (var token = first + local; token < end; token += LANES) {
    let value = penalised(f32(logits[params.base + token]), was_seen(token), params.penalty);
    if (value < least) { continue; }
    let candidate = score(token, value);
    if (candidate > best) {
      best = candidate;
      best_token = token;
    }
  }
  best_values[local] = best;
  best_tokens[local] = best_token;
  for (var step = LANES / 2u; step > 0u; step /= 2u) {
    workgroupBarrier();
    if (local < step) {
      let other = best_values[local + step];
      let token = best_tokens[local + step];
      if (other > best_values[local] || (other == best_values[local] && token < best_tokens[local])) {
        best_values[local] = other;
        best_tokens[local] = token;
      }
    }
  }
  if (local == 0u) { picks[group.x] = vec2(best_values[0], bitcast<f32>(best_tokens[0])); }
}
