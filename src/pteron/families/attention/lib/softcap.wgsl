// Scores as they are; softcap_tanh.wgsl bounds them.
fn capped(score: f32) -> f32 { return score; }
fn four_capped(scores: vec4<f32>) -> vec4<f32> { return scores; }
