// The elements of cached keys in 8 bits (int8.py): blocks of a scale, then eight words of four elements each.
// Replaces key_quads.wgsl.
const KEY_UNIT = 1u;

@group(0) @binding(1) var<storage, read> k: array<i32>;

fn key_quad(row: u32, quad: u32) -> vec4<f32> {
  let block = row + quad / 8u * 9u;
  return vec4<f32>(unpack4xI8(u32(k[block + 1u + quad % 8u]))) * bitcast<f32>(k[block]);
}
