//! extent a: batch * rows * depth
// The first factor of a matrix product, row-major, by quads along k. The number of k is a multiple of four.
alias A = f32;
const A_ALONG = true;

@group(0) @binding(0) var<storage, read> a: array<vec4<A>>;

// Zero past the last k. Past the last m, the last.
fn quad_of_a(z: u32, m: u32, k: u32) -> vec4<f32> {
  let row = (z * params.rows + min(m, params.rows - 1u)) * params.depth;
  if (IS_WHOLE) { return vec4<f32>(a[(row + k) / 4u]); }
  return select(vec4(0.0), vec4<f32>(a[(row + min(k, params.depth - 4u)) / 4u]), k < params.depth);
}
