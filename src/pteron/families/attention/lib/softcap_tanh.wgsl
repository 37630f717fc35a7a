//! use tanh
// Scores between -CAP and CAP: CAP · tanh(score / CAP).
const CAP = 50.0;

fn capped(score: f32) -> f32 { return CAP * tanh_of(score / CAP); }
fn four_capped(scores: vec4<f32>) -> vec4<f32> {
  return vec4(capped(scores.x), capped(scores.y), capped(scores.z), capped(scores.w));
}
