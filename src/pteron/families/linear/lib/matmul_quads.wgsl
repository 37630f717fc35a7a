//! extent a: batch * rows * depth
//! extent b: batch * depth * columns
// Both factors of a matrix product where k runs along rows of a and of bᵀ, and is a multiple of four long.
alias A = f32;
alias B = f32;

@group(0) @binding(0) var<storage, read> a: array<vec4<A>>;
@group(0) @binding(1) var<storage, read> b: array<vec4<B>>;

fn quad_of_a(z: u32, m: u32, k: u32) -> vec4<f32> {
  return vec4<f32>(a[((z * params.rows + m) * params.depth + k) / 4u]);
}

// Past the last column, the last.
fn quad_of_b(z: u32, k: u32, n: u32) -> vec4<f32> {
  return vec4<f32>(b[((z * params.columns + min(n, params.columns - 1u)) * params.depth + k) / 4u]);
}
