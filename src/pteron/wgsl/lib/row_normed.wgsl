//! use eights
//! loops: 8
//! extent gain: 8 * WORDS
//! extent normed: 8 * rows * WORDS
// What becomes of a row that invocations hold (lib/eights.wgsl): normed = x · gain / sqrt(mean(x²) + eps).
alias G = f32;
alias N = f32;
const EPS = 1e-5;

@group(0) @binding(30) var<storage, read> gain: array<vec4<G>>;
@group(0) @binding(31) var<storage, read_write> normed: array<vec4<N>>;

fn leave_row(held: array<vec4<f32>, 2u * TURNS>, row: u32, local: u32) {
  let factor = inverse_root(held, EPS, local);
  if (row >= params.rows) { return; }
  //! unroll
  for (var i = 0u; i < 2u * TURNS; i++) {
    let word = local % LANES + i / 2u * LANES;
    let quad = 2u * word + i % 2u;
    if (word < WORDS) {
      normed[2u * row * WORDS + quad] = vec4<N>(held[i] * factor * vec4<f32>(gain[quad]));
    }
  }
}
