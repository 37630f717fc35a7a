//! extent a: rows * depth
// All rows of the first factor of a matrix product, for matmul_uniform.wgsl; zero past the last k.
@group(0) @binding(0) var<storage, read> a: array<f32>;

fn x_of_row(m: u32, k: u32, lane: u32) -> f32 {
  let at = params.part * params.span + k + lane;
  return select(0.0, a[min(m, params.rows - 1u) * params.depth + min(at, params.depth - 1u)], at < params.depth);
}

fn is_row(m: u32) -> bool { return m < params.rows; }
