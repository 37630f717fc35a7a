//! extent a: ceil(batch, SHARE) * depth
// The first factor of products of one row each, SHARE of them with the same row of a.
alias A = f32;
const SHARE = 1u;

@group(0) @binding(0) var<storage, read> a: array<A>;

fn load_a(z: u32, m: u32, k: u32) -> f32 { return f32(a[z / SHARE * params.depth + k]); }
