//! use matmul_b
// The second factor of a matrix product by quads of any elements: along k, or along n.
const B_ALONG = true;

// Zero past the last k. Past the last n, the last.
fn element_of_b(z: u32, k: u32, n: u32) -> f32 {
  let value = load_b(z, min(k, params.depth - 1u), min(n, params.columns - 1u));
  return select(0.0, value, k < params.depth);
}

fn quad_of_b(z: u32, k: u32, n: u32) -> vec4<f32> {
  let next = select(vec2(0u, 1u), vec2(1u, 0u), B_ALONG);
  return vec4(
    element_of_b(z, k, n),
    element_of_b(z, k + next.x, n + next.y),
    element_of_b(z, k + 2u * next.x, n + 2u * next.y),
    element_of_b(z, k + 3u * next.x, n + 3u * next.y),
  );
}
