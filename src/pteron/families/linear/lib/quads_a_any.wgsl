//! use matmul_a
// The first factor of a matrix product by quads of any elements: along k, or along m.
const A_ALONG = true;

// Zero past the last k. Past the last m, the last.
fn element_of_a(z: u32, m: u32, k: u32) -> f32 {
  let value = load_a(z, min(m, params.rows - 1u), min(k, params.depth - 1u));
  return select(0.0, value, k < params.depth);
}

fn quad_of_a(z: u32, m: u32, k: u32) -> vec4<f32> {
  let next = select(vec2(1u, 0u), vec2(0u, 1u), A_ALONG);
  return vec4(
    element_of_a(z, m, k),
    element_of_a(z, m + next.x, k + next.y),
    element_of_a(z, m + 2u * next.x, k + 2u * next.y),
    element_of_a(z, m + 3u * next.x, k + 3u * next.y),
  );
}
