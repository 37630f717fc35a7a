//! loops: 32
//! extent gain: 4 * QUADS
//! extent normed: 4 * rows * QUADS
// Processes a row that invocations hold (lib/row_registers.wgsl): normed = x · gain / sqrt(mean(x²) + eps). Gains
// are loaded first, while squares are added up.
import super::row_registers::{OWN_QUADS, QUADS, inverse_root, quad_of};

alias G = f32;
alias N = f32;
override EPS: f32 = 1e-5;

@group(0) @binding(30) var<storage, read> gain: array<vec4<G>>;
@group(0) @binding(31) var<storage, read_write> normed: array<vec4<N>>;

fn finish_row(own: array<vec4<f32>, OWN_QUADS>, row: u32, local: u32) {
  var gains: array<vec4<f32>, OWN_QUADS>;
  //! unroll
  for (var i = 0u; i < OWN_QUADS; i++) { gains[i] = vec4<f32>(gain[min(quad_of(i, local), QUADS - 1u)]); }
  let factor = inverse_root(own, EPS, local);
  if (row >= params.rows) { return; }
  //! unroll
  for (var i = 0u; i < OWN_QUADS; i++) {
    let quad = quad_of(i, local);
    if (quad < QUADS) { normed[row * QUADS + quad] = vec4<N>(own[i] * factor * gains[i]); }
  }
}
