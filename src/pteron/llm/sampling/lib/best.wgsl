//! use rows
//! loops: 8
// The greatest score of a workgroup and its token; of equal scores, the one with the lesser token.
var<workgroup> best_scores: array<f32, WORKGROUP>;
var<workgroup> best_tokens: array<u32, WORKGROUP>;

// (the bits of the score, the token), returned to all lanes.
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
