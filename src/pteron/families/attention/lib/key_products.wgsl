//! loops: WIDTH // ELEMENTS
// Products of four queries and four cached keys of any width. Kernels declare the queries, `q`.
import super::heads::{IS_INT8, WIDTH};
@if(IS_INT8) import super::keys::{key_quad};

// Elements that are multiplied at a time: four of keys in 8 bits, so that their scale is loaded once.
@if(IS_INT8) const ELEMENTS = 4u;
@else const ELEMENTS = 1u;

@if(!IS_INT8) alias K = f32;
@if(!IS_INT8) @group(0) @binding(1) var<storage, read> k: array<K>;

// The sums, a column for each query. Heads begin at the given elements of q and k.
fn products(queries: vec4<u32>, keys: vec4<u32>) -> mat4x4<f32> {
  var sums = mat4x4<f32>();
  @if(IS_INT8) for (var quad = 0u; quad < WIDTH / 4u; quad++) {
    let four = mat4x4(key_quad(keys.x, quad), key_quad(keys.y, quad), key_quad(keys.z, quad), key_quad(keys.w, quad));
    sums[0] += query_quad(queries.x, quad) * four;
    sums[1] += query_quad(queries.y, quad) * four;
    sums[2] += query_quad(queries.z, quad) * four;
    sums[3] += query_quad(queries.w, quad) * four;
  }
  @else for (var d = 0u; d < WIDTH; d++) {
    let at = keys + d;
    let column = vec4(f32(k[at.x]), f32(k[at.y]), f32(k[at.z]), f32(k[at.w]));
    sums[0] += f32(q[queries.x + d]) * column;
    sums[1] += f32(q[queries.y + d]) * column;
    sums[2] += f32(q[queries.z + d]) * column;
    sums[3] += f32(q[queries.w + d]) * column;
  }
  return sums;
}

fn query_quad(query: u32, quad: u32) -> vec4<f32> {
  let at = query + 4u * quad;
  return vec4(f32(q[at]), f32(q[at + 1u]), f32(q[at + 2u]), f32(q[at + 3u]));
}
