//! extent b: (batch - 1) * depth * columns + (depth - 1) * b_row + (columns - 1) * b_column + 1
// The second factor of a matrix product, by its strides.
alias B = f32;

@group(0) @binding(1) var<storage, read> b: array<B>;

fn load_b(z: u32, k: u32, n: u32) -> f32 {
  return f32(b[z * params.depth * params.columns + k * params.b_row + n * params.b_column]);
}
