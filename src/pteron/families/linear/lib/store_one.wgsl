//! extent out: (parts * batch * rows - 1) * pitch + first + columns
// Finishes sums of a matrix product (lib/matmul.wgsl) and stores them. lib/store_quads.wgsl replaces it for quads.
alias R = f32;

@group(0) @binding(3) var<storage, read_write> out: array<R>;

fn store(slice: u32, m: u32, n: u32, sum: f32) {
  out[(slice * params.rows + m) * params.pitch + params.first + n] = R(result(m, n, sum));
}

// Columns n to n + 3, as far as they exist.
fn store_quad(slice: u32, m: u32, n: u32, totals: vec4<f32>) {
  //! unroll
  for (var e = 0u; e < 4u; e++) {
    if (n + e < params.columns) { store(slice, m, n + e, totals[e]); }
  }
}
