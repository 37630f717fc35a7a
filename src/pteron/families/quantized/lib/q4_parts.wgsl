//! extent sums: PARTS * rows * columns
// A product from the sums of its parts, laid out as [part][m][n], by fours of neighbouring columns.
import super::q4_params::{params};
import super::q4_quads::{OTHERS, PARTS, gated, result};

override IS_GATED: bool = false; // whether the first half of the columns is a gate for the second: OTHERS

@group(0) @binding(8) var<storage, read> sums: array<vec4<f32>>;

fn total(m: u32, n: u32) -> vec4<f32> {
  let at = (m * params.columns + n) / 4u;
  var sum = vec4(0.0);
  //! unroll
  for (var part = 0u; part < PARTS; part++) { sum += sums[part * (params.rows * params.columns / 4u) + at]; }
  return sum;
}

fn sum_parts(m: u32, n: u32) -> vec4<f32> {
  @if(IS_GATED) return gated(m, n, total(m, n), total(m, n + OTHERS));
  @else return result(m, n, total(m, n));
}
