// The elements of cached values in 8 bits (int8.py): blocks of a scale, then eight words of four elements each.
// Replaces value_quads.wgsl and value_elements.wgsl.
const VALUE_UNIT = 1u;

@group(0) @binding(2) var<storage, read> v: array<i32>;

fn value_quad(row: u32, quad: u32) -> vec4<f32> {
  let block = row + quad / 8u * 9u;
  return vec4<f32>(unpack4xI8(u32(v[block + 1u + quad % 8u]))) * bitcast<f32>(v[block]);
}

fn value_element(row: u32, d: u32) -> f32 {
  let block = row + d / 32u * 9u;
  return f32(extractBits(v[block + 1u + d % 32u / 4u], d % 4u * 8u, 8u)) * bitcast<f32>(v[block]);
}

fn value_elements(row: u32, d: u32, width: u32) -> vec4<f32> { return value_quad(row, d / 4u); }
