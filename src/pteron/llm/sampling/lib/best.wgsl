//! loops: max(8, ceil(LANES, SUBGROUP))
// The greatest score of a workgroup and its token; of equal scores, the one with the lesser token. No score is NaN.
import package::wgsl::lib::rows::{LANES, SUBGROUP, SUBGROUPS, WORKGROUP};

@if(BY_SUBGROUPS) var<workgroup> best_scores: array<f32, WORKGROUP / SUBGROUP>;
@else var<workgroup> best_scores: array<f32, WORKGROUP>;
@if(BY_SUBGROUPS) var<workgroup> best_tokens: array<u32, WORKGROUP / SUBGROUP>;
@else var<workgroup> best_tokens: array<u32, WORKGROUP>;

// (the bits of the score, the token), returned to all lanes.
@if(BY_SUBGROUPS)
fn best_of_lanes(score: f32, token: u32, local: u32) -> vec2<u32> {
  var best = subgroupMax(score);
  var best_token = subgroupMin(select(0xffffffffu, token, score == best));
  if (SUBGROUPS == 1u) { return vec2(bitcast<u32>(best), best_token); }
  if (local % SUBGROUP == 0u) {
    best_scores[local / SUBGROUP] = best;
    best_tokens[local / SUBGROUP] = best_token;
  }
  workgroupBarrier();
  best = best_scores[0];
  best_token = best_tokens[0];
  for (var i = 1u; i < SUBGROUPS; i++) {
    let other = best_scores[i];
    if (other > best || (other == best && best_tokens[i] < best_token)) {
      best = other;
      best_token = best_tokens[i];
    }
  }
  workgroupBarrier();
  return vec2(bitcast<u32>(best), best_token);
}
@else
fn best_of_lanes(score: f32, token: u32, local: u32) -> vec2<u32> {
  best_scores[local] = score;
  best_tokens[local] = token;
  for (var step = LANES / 2u; step > 0u; step /= 2u) {
    workgroupBarrier();
    if (local < step) {
      let other = best_scores[local + step];
      let token = best_tokens[local + step];
      if (other > best_scores[local] || (other == best_scores[local] && token < best_tokens[local])) {
        best_scores[local] = other;
        best_tokens[local] = token;
      }
    }
  }
  workgroupBarrier();
  return vec2(bitcast<u32>(best_scores[0]), best_tokens[0]);
}
