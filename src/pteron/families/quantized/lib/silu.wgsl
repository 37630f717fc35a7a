// x / (1 + exp(-x)), rounded as `pteron.silu_mul` rounds it.
fn silu(x: f32) -> f32 { return x * (1.0 / (1.0 + exp(-x))); }
fn silu_quad(x: vec4<f32>) -> vec4<f32> { return x * (1.0 / (1.0 + exp(-x))); }
