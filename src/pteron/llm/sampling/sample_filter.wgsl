//! use rows
//! use sample
// The least logit that may still be picked, by top-k and then top-p: both are thresholds, found by
// narrowing an interval of logits to one part in eight at a time, until nothing lies between its ends.
// One workgroup looks at all.
alias X = f32;
alias I = u32;
const PARTS = 8u;
const ROUNDS = 10u; // an eighth each: 30 bits of the interval
const NO_LIMIT = -3.4028234e38;

struct Params {
  vocabulary: u32,
  base: u32, // where the last row of logits starts
  block_count: u32,
  top_k: u32, // 0: no limit
  top_p: f32, // 1: no limit
  temperature: f32,
  penalty: f32,
}

@group(0) @binding(0) var<storage, read> logits: array<X>;
@group(0) @binding(1) var<storage, read> seen: array<I>;
@group(0) @binding(2) var<storage, read> blocks: array<vec4<f32>>;
@group(0) @binding(3) var<storage, read_write> threshold: array<f32>;
@group(0) @binding(4) var<uniform> params: Params;

var<workgroup> tallies: array<array<f32, PARTS>, WORKGROUP>;
var<workgroup> low_end: f32;
var<workgroup> high_end: f32;

fn was_seen(token: u32) -> bool { return seen[token] != 0u; }

fn logit(token: u32) -> f32 {
  return penalised(f32(logits[params.base + token]), was_seen(token), params.penalty);
}

// Narrow [low_end, high_end) to where the weight of all logits at or above a value first reaches `goal`.
// A logit weighs 1 where `counts`, else its share of the probability, and nothing below `floor_`.
fn narrow(local: u32, counts: bool, floor_: f32, most: f32, goal: f32) {
  for (var round = 0u; round < ROUNDS; round++) {
    let low = low_end;
    let width = (high_end - low) / f32(PARTS);
    var weights = array<f32, PARTS>();
    for (var token = local; token < params.vocabulary; token += LANES) {
      let value = logit(token);
      if (value < floor_) { continue; }
      let weight = select(exp((value - most) / params.temperature), 1.0, counts);
      for (var part = 0u; part < PARTS; part++) {
        weights[part] += select(0.0, weight, value >= low + f32(part) * width);
      }
    }
    tallies[local] = weights;
    workgroupBarrier();
    if (local == 0u) {
      var reached = 0u;
      for (var part = 1u; part < PARTS; part++) {
        var total = 0.0;
        for (var lane = 0u; lane < LANES; lane++) { total += tallies[lane][part]; }
        if (total >= goal) { reached = part; }
      }
      low_end = low + f32(reached) * width;
      high_end = low + f32(reached + 1u) * width;
    }
    workgroupBarrier();
  }
}

@compute @workgroup_size(WORKGROUP)
fn main(@builtin(local_invocation_index) local: u32) {
  var most = NO_LIMIT;
  for (var block = 0u; block < params.block_count; block++) { most = max(most, blocks[block].z); }
  var least = most;
  for (var token = local; token < params.vocabulary; token += LANES) { least = min(least, logit(token)); }
  least = max(-row_max(-least, local), most - 100.0 * params.temperature);

  var kept = NO_LIMIT;
  if (params.top_k > 0u && params.top_k < params.vocabulary) {
    if (local == 0u) { low_end = least; high_end = most + abs(most) * 1e-6 + 1e-6; }
    workgroupBarrier();
    narrow(local, true, NO_LIMIT, most, f32(params.top_k));
    kept = low_end;
    workgroupBarrier();
  }
  if (params.top_p < 1.0) {
    var sum = 0.0;
    for (var token = local; token < params.vocabulary; token += LANES) {
      let value = logit(token);
      sum += select(0.0, exp((value - most) / params.temperature), value >= kept);
    }
    sum = row_sum(sum, local);
    if (local == 0u) { low_end = max(least, kept); high_end = most + abs(most) * 1e-6 + 1e-6; }
    workgroupBarrier();
    narrow(local, false, kept, most, params.top_p * sum);
    kept = max(kept, low_end);
  }
  if (local == 0u) { threshold[0] = kept; }
}
