// Rows of QUADS vec4s in the registers of LANES invocations: each has NEIGHBOURS adjacent vec4s, then NEIGHBOURS
// after those of all lanes, and so on, OWN_QUADS in total, with zeros past the row's end.
import super::rows::{LANES, row_sum};

override QUADS: u32 = 16u; // a multiple of NEIGHBOURS
override NEIGHBOURS: u32 = 2u;
const OWN_QUADS = (QUADS + NEIGHBOURS * LANES - 1u) / (NEIGHBOURS * LANES) * NEIGHBOURS;

// The index in the row of the i-th vec4 of an invocation; it may be past the end.
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
