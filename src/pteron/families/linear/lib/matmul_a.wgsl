//! extent a: batch * rows * depth
// The first factor of a matrix product, row-major unless `load_a` is another.
alias A = f32;

@group(0) @binding(0) var<storage, read> a: array<A>;

fn load_a(z: u32, m: u32, k: u32) -> f32 { return f32(a[(z * params.rows + m) * params.depth + k]); }
