//! loops: 64
//! extent weight: 4 * QUADS
//! extent bias: 4 * QUADS
//! extent out: 4 * rows * QUADS
//! extent mean: rows
//! extent rstd: rows
// Layer norm, as layer_norm.wgsl, for rows of whole vec4s with an element per channel. The row stays in the registers of
// its invocations (rows_from_memory.wgsl).
import package::wgsl::lib::row_registers::{OWN_QUADS, QUADS, quad_of};
import package::wgsl::lib::rows::{LANES, row_sum};
import package::wgsl::lib::rows_from_memory::{main, params};

alias W = f32;
alias V = f32;
alias R = f32;
alias S = f32;
override EPS: f32 = 1e-5;

@group(0) @binding(2) var<storage, read> weight: array<vec4<W>>;
@group(0) @binding(3) var<storage, read> bias: array<vec4<V>>;
@group(0) @binding(4) var<storage, read_write> out: array<vec4<R>>;
@group(0) @binding(5) var<storage, read_write> mean: array<S>;
@group(0) @binding(6) var<storage, read_write> rstd: array<S>;

// Gains and shifts are loaded first, while elements are added up.
fn finish_row(own: array<vec4<f32>, OWN_QUADS>, row: u32, local: u32) {
  @if(weight) var gains: array<vec4<f32>, OWN_QUADS>;
  @if(bias) var shifts: array<vec4<f32>, OWN_QUADS>;
  var sum = 0.0;
  //! unroll
  for (var i = 0u; i < OWN_QUADS; i++) {
    let quad = min(quad_of(i, local), QUADS - 1u);
    @if(weight) gains[i] = vec4<f32>(weight[quad]);
    @if(bias) shifts[i] = vec4<f32>(bias[quad]);
    sum += dot(own[i], vec4(1.0));
  }
  let center = row_sum(sum, local) / f32(4u * QUADS);
  var squares = 0.0;
  //! unroll
  for (var i = 0u; i < OWN_QUADS; i++) {
    let value = own[i] - center;
    if (quad_of(i, local) < QUADS) { squares += dot(value, value); }
  }
  let scale = inverseSqrt(row_sum(squares, local) / f32(4u * QUADS) + EPS);
  if (row >= params.rows) { return; }
  //! unroll
  for (var i = 0u; i < OWN_QUADS; i++) {
    let quad = quad_of(i, local);
    var result = (own[i] - center) * scale;
    @if(weight) result *= gains[i];
    @if(bias) result += shifts[i];
    if (quad < QUADS) { out[row * QUADS + quad] = vec4<R>(result); }
  }
  if (local % LANES == 0u) {
    mean[row] = S(center);
    rstd[row] = S(scale);
  }
}
