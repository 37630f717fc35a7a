//! use rows
//! loops: ceil(LANES, SUBGROUP)
// best.wgsl by subgroups, for rows_subgroup.wgsl. No score is NaN.
var<workgroup> best_scores: array<f32, WORKGROUP / SUBGROUP>;
var<workgroup> best_tokens: array<u32, WORKGROUP / SUBGROUP>;

// (the bits of the score, the token), returned to all lanes.
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
