//! loops: WIDTH
// Products of four queries and four keys, whose heads begin at the given elements; a column for each query.
alias K = f32;

@group(0) @binding(1) var<storage, read> k: array<K>;

fn products(queries: vec4<u32>, keys: vec4<u32>) -> mat4x4<f32> {
  var sums = mat4x4<f32>();
  for (var d = 0u; d < WIDTH; d++) {
    let at = keys + d;
    let column = vec4(f32(k[at.x]), f32(k[at.y]), f32(k[at.z]), f32(k[at.w]));
    sums[0] += f32(q[queries.x + d]) * column;
    sums[1] += f32(q[queries.y + d]) * column;
    sums[2] += f32(q[queries.z + d]) * column;
    sums[3] += f32(q[queries.w + d]) * column;
  }
  return sums;
}
