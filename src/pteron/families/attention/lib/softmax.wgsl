// Weights of a softmax, exp(score - maximum). A score of -∞ is masked out: its weight is 0. The test is explicit since
// drivers may compute exp(-∞) > 0.
fn is_masked(score: f32) -> bool { return bitcast<u32>(score) == 0xff800000u; }
fn are_masked(scores: vec4<f32>) -> vec4<bool> { return bitcast<vec4<u32>>(scores) == vec4(0xff800000u); }

fn greatest(x: vec4<f32>) -> f32 { return max(max(x.x, x.y), max(x.z, x.w)); }

// The weights of four keys, before the division by the sum over all keys.
fn weights_of(scores: vec4<f32>, most: f32) -> vec4<f32> {
  return select(exp(scores - most), vec4(0.0), are_masked(scores));
}
