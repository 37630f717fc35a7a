// Whether a score is masked out of a softmax. The test is explicit since drivers may compute exp(-∞) > 0.
fn is_masked(score: f32) -> bool { return bitcast<u32>(score) == 0xff800000u; }
fn are_masked(scores: vec4<f32>) -> vec4<bool> { return bitcast<vec4<u32>>(scores) == vec4(0xff800000u); }
