//! use rows
// Rows of QUADS vec4s that LANES invocations share and hold: each has NEIGHBOURS side by side, then as many of
// those that follow all lanes' first, OWN_QUADS in all, and zeros past the row's end.
const QUADS = 16u; // a multiple of NEIGHBOURS
const NEIGHBOURS = 2u;
const OWN_QUADS = (QUADS + NEIGHBOURS * LANES - 1u) / (NEIGHBOURS * LANES) * NEIGHBOURS;

// Which of a row's vec4s is the i-th that an invocation holds, if there are so many.
fn quad_of(i: u32, local: u32) -> u32 {
  return (local % LANES + i / NEIGHBOURS * LANES) * NEIGHBOURS + i % NEIGHBOURS;
}

// 1 / sqrt(mean(x²) + eps) of a row, given to all of its invocations.
fn inverse_root(own: array<vec4<f32>, OWN_QUADS>, eps: f32, local: u32) -> f32 {
  var squares = 0.0;
  //! unroll
  for (var i = 0u; i < OWN_QUADS; i++) { squares += dot(own[i], own[i]); }
  return inverseSqrt(row_sum(squares, local) / f32(4u * QUADS) + eps);
}
