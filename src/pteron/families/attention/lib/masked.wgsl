// Whether a score takes no part in a softmax: drivers may give exp(-∞) a value above zero.
fn is_masked(score: f32) -> bool { return bitcast<u32>(score) == 0xff800000u; }
fn are_masked(scores: vec4<f32>) -> vec4<bool> { return bitcast<vec4<u32>>(scores) == vec4(0xff800000u); }
