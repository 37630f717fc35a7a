// What a product's function is applied to: nothing here. activation_math.wgsl replaces it.
fn activated(x: f32) -> f32 { return x; }
