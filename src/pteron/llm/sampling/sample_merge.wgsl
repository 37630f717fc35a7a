//! use rows
//! use sample
//! use best
//! loops: 2 * ceil(block_count, LANES) + 16
// The token picked from all blocks, and its log-probability under the logits as they came: a NaN where one of
// them is. One workgroup does it all.
alias X = f32;
alias I = u32;
alias T = i32;
alias P = f32;

struct Params {
  base: u32, // where the last row of logits starts
  block_count: u32,
}

@group(0) @binding(0) var<storage, read> logits: array<X>;
@group(0) @binding(1) var<storage, read> blocks: array<vec4<f32>>;
@group(0) @binding(2) var<storage, read> picks: array<vec2<u32>>;
@group(0) @binding(3) var<storage, read_write> seen: array<I>;
@group(0) @binding(4) var<storage, read_write> token: array<T>;
@group(0) @binding(5) var<storage, read_write> logprob: array<P>;
@group(0) @binding(6) var<uniform> params: Params;

fn remember(picked: u32) { seen[picked] = 1u; }

@compute @workgroup_size(WORKGROUP)
fn main(@builtin(local_invocation_index) local: u32) {
  var best = LOWEST;
  var best_token = 0xffffffffu;
  var most = LOWEST;
  for (var block = local; block < params.block_count; block += LANES) {
    let score = bitcast<f32>(picks[block].x);
    if (score > best || best_token == 0xffffffffu) {
      best = score;
      best_token = picks[block].y;
    }
    most = max(most, blocks[block].x);
  }
  let picked = best_of_lanes(best, best_token, local).y;
  most = row_max(most, local);
  var sum = 0.0;
  for (var block = local; block < params.block_count; block += LANES) {
    sum += blocks[block].y * exp(blocks[block].x - most);
  }
  sum = row_sum(sum, local);
  if (local == 0u) {
    token[0] = T(picked);
    let value = finite(f32(logits[params.base + picked])) - most - log(sum);
    logprob[0] = P(select(value, nan(), is_nan(sum)));
    remember(picked);
  }
}
