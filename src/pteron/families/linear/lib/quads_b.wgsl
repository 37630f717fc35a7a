//! extent b: batch * depth * columns
// The second factor of a matrix product by quads: along k, or along n where n runs fastest. The length of that dim is a
// multiple of four.
alias B = f32;
const B_ALONG = true;

@group(0) @binding(1) var<storage, read> b: array<vec4<B>>;

// Zero past the last k. Past the last n, the last.
fn quad_of_b(z: u32, k: u32, n: u32) -> vec4<f32> {
  let there = select(min(k, params.depth - select(1u, 4u, B_ALONG)), k, IS_WHOLE);
  let along = (z * params.columns + min(n, params.columns - 1u)) * params.depth + there;
  let across = (z * params.depth + there) * params.columns + min(n, params.columns - 4u);
  let value = vec4<f32>(b[select(across, along, B_ALONG) / 4u]);
  return select(vec4(0.0), value, IS_WHOLE || k < params.depth);
}
