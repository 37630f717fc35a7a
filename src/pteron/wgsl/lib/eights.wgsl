//! use rows
// Rows of WORDS eights that LANES invocations share and hold: of every LANES eights each invocation has one, as
// two vec4s, and zeros past the row's end.
const WORDS = 8u;
const TURNS = (WORDS + LANES - 1u) / LANES;

// 1 / sqrt(mean(x²) + eps) of a row, given to all of its invocations.
fn inverse_root(held: array<vec4<f32>, 2u * TURNS>, eps: f32, local: u32) -> f32 {
  var squares = 0.0;
  //! unroll
  for (var i = 0u; i < 2u * TURNS; i++) { squares += dot(held[i], held[i]); }
  return inverseSqrt(row_sum(squares, local) / f32(8u * WORDS) + eps);
}
