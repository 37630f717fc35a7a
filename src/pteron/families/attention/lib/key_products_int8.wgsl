//! use keys_int8
//! loops: WIDTH // 4
// key_products.wgsl for keys in 8 bits, whose scales are loaded once for four elements.
fn products(queries: vec4<u32>, keys: vec4<u32>) -> mat4x4<f32> {
  var sums = mat4x4<f32>();
  for (var quad = 0u; quad < WIDTH / 4u; quad++) {
    let four = mat4x4(key_quad(keys.x, quad), key_quad(keys.y, quad), key_quad(keys.z, quad), key_quad(keys.w, quad));
    sums[0] += query_quad(queries.x, quad) * four;
    sums[1] += query_quad(queries.y, quad) * four;
    sums[2] += query_quad(queries.z, quad) * four;
    sums[3] += query_quad(queries.w, quad) * four;
  }
  return sums;
}

fn query_quad(query: u32, quad: u32) -> vec4<f32> {
  let at = query + 4u * quad;
  return vec4(f32(q[at]), f32(q[at + 1u]), f32(q[at + 2u]), f32(q[at + 3u]));
}
