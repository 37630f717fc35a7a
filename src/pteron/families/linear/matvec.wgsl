//! use rows
//! use matmul
//! use quads_a
//! use quads_b
//! loops: ceil(span, 4 * LANES * STEPS) + 8 * (SUMS + TALL)
//! extent gain: depth
// A matrix product (lib/matmul.wgsl) for few rows, bound by reading b. LANES invocations share WIDE columns of b, whose
// contiguous dim is k, and walk k together; each quad of b is loaded once for all rows. STEPS quads of a column are
// loaded before any is used: then their LANES · STEPS divide the quads of a column. With IS_NORMED, rows of a are normed
// first: multiplied by `gain` and divided by the root of the mean of their squares, which follows from the same walk.
alias W = f32;
const IS_NORMED = false;
const EPS = 0.0;
const TALL = 1u; // rows, or more
const WIDE = 1u;
const STEPS = 1u;
const SUMS = TALL * WIDE;
const QUADS = STEPS * WIDE;

@group(0) @binding(10) var<storage, read> gain: array<vec4<W>>;

fn gain_at(k: u32) -> vec4<f32> { return vec4<f32>(gain[k / 4u]); }

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
        if (IS_NORMED) { squares[m] += dot(row, row); }
        let x = row * gain_at(k + 4u * LANES * s);
        //! unroll
        for (var c = 0u; c < WIDE; c++) { sums[m * WIDE + c] += dot(x, quads[s * WIDE + c]); }
      }
    }
  }
  //! unroll
  for (var m = 0u; m < TALL; m++) {
    var scale = 1.0;
    if (IS_NORMED) { scale = inverseSqrt(row_sum(squares[m], local) / f32(params.depth) + EPS); }
    //! unroll
    for (var c = 0u; c < WIDE; c++) {
      let total = scale * row_sum(sums[m * WIDE + c], local);
      if (inside && lane == 0u && m < params.rows && n + c < params.columns) { store(slice, m, n + c, total); }
    }
  }
}
