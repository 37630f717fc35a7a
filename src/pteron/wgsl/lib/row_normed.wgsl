//! loops: 64
//! extent gain: 4 * QUADS
//! extent shift: 4 * QUADS
//! extent normed: 4 * rows * QUADS
//! extent mean: rows
//! extent rstd: rows
// Processes a row that invocations hold (lib/row_registers.wgsl): normed = (x - mean) · rstd · gain + shift, where
// rstd = 1 / sqrt(variance + eps). An RMS norm, without results for mean and rstd, takes the mean of its squares for the
// variance. Gains and shifts are loaded first, while elements are added up.
import super::row_registers::{OWN_QUADS, QUADS, inverse_root, quad_of};
import super::rows::{LANES, row_sum};

alias G = f32; // of the gain
alias V = f32; // of the shift
alias N = f32; // of the result
alias S = f32; // of mean and rstd
override EPS: f32 = 1e-5;

@group(0) @binding(30) var<storage, read> gain: array<vec4<G>>;
@group(0) @binding(31) var<storage, read_write> normed: array<vec4<N>>;
@group(0) @binding(34) var<storage, read> shift: array<vec4<V>>;
@group(0) @binding(35) var<storage, read_write> mean: array<S>;
@group(0) @binding(36) var<storage, read_write> rstd: array<S>;

fn finish_row(own: array<vec4<f32>, OWN_QUADS>, row: u32, local: u32) {
  @if(gain) var gains: array<vec4<f32>, OWN_QUADS>;
  @if(shift) var shifts: array<vec4<f32>, OWN_QUADS>;
  var distances = own;
  @if(mean) var sum = 0.0;
  //! unroll
  for (var i = 0u; i < OWN_QUADS; i++) {
    let quad = min(quad_of(i, local), QUADS - 1u);
    @if(gain) gains[i] = vec4<f32>(gain[quad]);
    @if(shift) shifts[i] = vec4<f32>(shift[quad]);
    @if(mean) sum += dot(own[i], vec4(1.0));
  }
  @if(mean) {
    let center = row_sum(sum, local) / f32(4u * QUADS);
    if (row < params.rows && local % LANES == 0u) { mean[row] = S(center); }
    //! unroll
    for (var i = 0u; i < OWN_QUADS; i++) { distances[i] = select(vec4(0.0), own[i] - center, quad_of(i, local) < QUADS); }
  }
  let scale = inverse_root(distances, EPS, local);
  if (row >= params.rows) { return; }
  @if(rstd) if (local % LANES == 0u) { rstd[row] = S(scale); }
  //! unroll
  for (var i = 0u; i < OWN_QUADS; i++) {
    let quad = quad_of(i, local);
    var result = distances[i] * scale;
    @if(gain) result *= gains[i];
    @if(shift) result += shifts[i];
    if (quad < QUADS) { normed[row * QUADS + quad] = vec4<N>(result); }
  }
}
