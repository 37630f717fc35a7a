// The token picked from all blocks, and its log-probability under the logits as they came. One invocation
// does it all.
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
@group(0) @binding(2) var<storage, read> picks: array<vec2<f32>>;
@group(0) @binding(3) var<storage, read_write> seen: array<I>;
@group(0) @binding(4) var<storage, read_write> token: array<T>;
@group(0) @binding(5) var<storage, read_write> logprob: array<P>;
@group(0) @binding(6) var<uniform> params: Params;

fn remember(picked: u32) { seen[picked] = 1u; }

@compute @workgroup_size(1)
fn main() {
  var best = picks[0];
  var most = blocks[0].x;
  for (var block = 1u; block < params.block_count; block++) {
    if (picks[block].x > best.x) { best = picks[block]; }
    most = max(most, blocks[block].x);
  }
  var sum = 0.0;
  for (var block = 0u; block < params.block_count; block++) {
    sum += blocks[block].y * exp(blocks[block].x - most);
  }
  let picked = bitcast<u32>(best.y);
  token[0] = T(picked);
  logprob[0] = P(f32(logits[params.base + picked]) - most - log(sum));
  remember(picked);
}
