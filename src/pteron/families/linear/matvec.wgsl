//! loops: ceil(span, 4 * LANES * STEPS) + 8 * (SUMS + TALL)
//! extent gain: depth
// A matrix product (lib/matmul.wgsl) for few rows, bound by reading b. LANES invocations share WIDE columns of b, whose
// contiguous dim is k, and walk k together; each quad of b is loaded once for all rows. STEPS quads of a column are
// loaded before any is used: then their LANES · STEPS divide the quads of a column. If there is a gain, rows of a are normed
// first: multiplied by it and divided by the root of the mean of their squares, which follows from the same walk.
import package::wgsl::lib::rows::{WORKGROUP, row_index, row_sum};
import super::lib::matmul::{batch_of, params, part_of};
import super::lib::matmul_a::{quad_of_a};
import super::lib::matmul_b::{quad_of_b};
import super::lib::matmul_store::{store};

alias W = f32;
override EPS: f32 = 0.0; // added to the mean of squares
override TALL: u32 = 1u; // rows, or more
override WIDE: u32 = 1u;
override STEPS: u32 = 1u;
const SUMS = TALL * WIDE;
const QUADS = STEPS * WIDE;

@group(0) @binding(10) var<storage, read> gain: array<vec4<W>>;

// Four k of a normed row, before the division.
fn scaled(row: vec4<f32>, k: u32) -> vec4<f32> {
  @if(gain) return row * vec4<f32>(gain[k / 4u]);
  @else return row;
}

@compute @workgroup_size(WORKGROUP)
fn main(
  @builtin(workgroup_id) group: vec3<u32>,
  @builtin(num_workgroups) groups: vec3<u32>,
  @builtin(local_invocation_index) local: u32,
) {
  let i = row_index(group, groups, local);
  let lane = local % LANES;
  let strips = (params.columns + WIDE - 1u) / WIDE;
  let n = i % strips * WIDE;
  let slice = i / strips;
  let inside = slice < params.batch * params.parts;
  let z = batch_of(slice);
  let k_first = part_of(slice) * params.span;
  let k_end = select(0u, min(k_first + params.span, params.depth), inside);
  //! spread
  var sums: array<f32, SUMS>;
  @if(gain)
  //! spread
  var squares: array<f32, TALL>;
  for (var k = k_first + 4u * lane; k < k_end; k += 4u * LANES * STEPS) {
    //! spread
    var quads: array<vec4<f32>, QUADS>;
    //! unroll
    for (var s = 0u; s < STEPS; s++) {
      //! unroll
      for (var c = 0u; c < WIDE; c++) { quads[s * WIDE + c] = quad_of_b(z, k + 4u * LANES * s, n + c); }
    }
    //! unroll
    for (var s = 0u; s < STEPS; s++) {
      //! unroll
      for (var m = 0u; m < TALL; m++) {
        let row = quad_of_a(z, m, k + 4u * LANES * s);
        @if(gain) squares[m] += dot(row, row);
        let x = scaled(row, k + 4u * LANES * s);
        //! unroll
        for (var c = 0u; c < WIDE; c++) { sums[m * WIDE + c] += dot(x, quads[s * WIDE + c]); }
      }
    }
  }
  //! unroll
  for (var m = 0u; m < TALL; m++) {
    @if(gain) let scale = inverseSqrt(row_sum(squares[m], local) / f32(params.depth) + EPS);
    @else let scale = 1.0;
    //! unroll
    for (var c = 0u; c < WIDE; c++) {
      let total = scale * row_sum(sums[m * WIDE + c], local);
      if (inside && lane == 0u && m < params.rows && n + c < params.columns) { store(slice, m, n + c, total); }
    }
  }
}
