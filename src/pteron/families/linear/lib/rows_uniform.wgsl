//! extent a: ROWS * span
// Rows of the first factor of a matrix product as a uniform array: those of a launch of matmul_uniform.wgsl.
const ROWS = 8u; // a multiple of TILE
const A_ROOM = 8u; // vec4s: of ROWS rows

@group(0) @binding(17) var<uniform> a: array<vec4<f32>, A_ROOM>;

fn x_of_row(m: u32, k: u32, lane: u32) -> f32 { return a[(min(m, ROWS - 1u) * params.span + k) / 4u][lane]; }

fn is_row(m: u32) -> bool { return m < ROWS && params.first_row + m < params.rows; }
