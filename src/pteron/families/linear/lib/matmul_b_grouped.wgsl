//! extent b: (LAST + 1) * depth * columns
//! extent b_scales: batch
// The second factor of a matrix product whose row z uses matrix groups[z], by its strides.
alias B = f32;
alias G = i32;
const LAST = 0u; // matrix

@group(0) @binding(1) var<storage, read> b: array<B>;
@group(0) @binding(6) var<storage, read> b_scales: array<G>; // groups

fn matrix_of(z: u32) -> u32 { return min(u32(b_scales[z]), LAST); }

fn load_b(z: u32, k: u32, n: u32) -> f32 {
  return f32(b[matrix_of(z) * params.depth * params.columns + k * params.b_row + n * params.b_column]);
}
