// Scores as they are or, if capped, between -CAP and CAP: CAP · tanh(score / CAP).
import package::wgsl::lib::tanh::{tanh_of};

override IS_CAPPED: bool = false;
override CAP: f32 = 50.0;

fn capped(score: f32) -> f32 {
  @if(IS_CAPPED) return CAP * tanh_of(score / CAP);
  @else return score;
}

fn four_capped(scores: vec4<f32>) -> vec4<f32> {
  @if(IS_CAPPED) return vec4(capped(scores.x), capped(scores.y), capped(scores.z), capped(scores.w));
  @else return scores;
}
