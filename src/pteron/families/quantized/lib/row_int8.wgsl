//! loops: 96
//! extent gain: 4 * QUADS
//! extent row_scales: 2 * rows
//! extent words: rows * QUADS
// Processes a row that invocations hold (lib/row_registers.wgsl): int8 by a scale and a zero point that fit it as
// choose_qparams.wgsl finds them, after an RMS norm where there is a gain:
// clamp(round(y / scale) + zero, -128, 127), y = x · gain / sqrt(mean(x²) + eps).
// Of eight neighbours, which an invocation holds side by side, a pair of words is left, as q4_quantize.wgsl
// leaves them. Merging a row's lanes takes 32 iterations at most, three times.
import package::wgsl::lib::row_registers::{OWN_QUADS, QUADS, inverse_root, quad_of};
import package::wgsl::lib::rows::{LANES, row_max};
import super::extremes::{scale_between, zero_between};
import super::int8_steps::{int8_steps};

alias G = f32;
override EPS: f32 = 1e-5; // of the norm
override LEAST: f32 = 1.1754943508222875e-38; // that a scale can be

@group(0) @binding(30) var<storage, read> gain: array<vec4<G>>;
@group(0) @binding(32) var<storage, read_write> row_scales: array<f32>; // of all rows, then their zero points
@group(0) @binding(33) var<storage, read_write> words: array<vec2<u32>>;

fn greatest(value: vec4<f32>) -> f32 { return max(max(value.x, value.y), max(value.z, value.w)); }

fn finish_row(given: array<vec4<f32>, OWN_QUADS>, row: u32, local: u32) {
  var quads = given;
  @if(gain) {
    var gains: array<vec4<f32>, OWN_QUADS>; // asked for first, so that they are there when the sum of squares is
    //! unroll
    for (var i = 0u; i < OWN_QUADS; i++) { gains[i] = vec4(1.0) * vec4<f32>(gain[min(quad_of(i, local), QUADS - 1u)]); }
    let factor = inverse_root(given, EPS, local);
    //! unroll
    for (var i = 0u; i < OWN_QUADS; i++) { quads[i] = quads[i] * factor * gains[i]; }
  }
  var most = 0.0;
  var least = 0.0;
  //! unroll
  for (var i = 0u; i < OWN_QUADS; i++) {
    most = max(most, greatest(quads[i]));
    least = min(least, -greatest(-quads[i]));
  }
  most = row_max(most, local);
  least = -row_max(-least, local);
  let step = max(scale_between(least, most, -128.0, 127.0), LEAST);
  let zero = zero_between(least, step, -128.0, 127.0);
  if (row >= params.rows) { return; }
  if (local % LANES == 0u) {
    row_scales[row] = step;
    row_scales[params.rows + row] = zero;
  }
  //! unroll
  for (var i = 0u; i < OWN_QUADS; i += 2u) {
    let quad = quad_of(i, local);
    if (quad < QUADS) {
      let low = vec4<i32>(int8_steps(quads[i], step, zero));
      let high = vec4<i32>(int8_steps(quads[i + 1u], step, zero));
      words[(row * QUADS + quad) / 2u] = vec2(pack4xI8(vec4(low.xz, high.xz)), pack4xI8(vec4(low.yw, high.yw)));
    }
  }
}
