//! use row_normed
//! use q4_sizes
//! use q4_quads
//! use q4_parts
//! extent out: rows * (columns - OTHERS)
// A product with 4-bit weights from the sums of its parts, as q4_merge_quads.wgsl, and what follows it: its rows
// normed (lib/row_normed.wgsl) or as int8 (lib/row_int8.wgsl). LANES invocations share a row and hold it; what they
// hold is what `out` stores of it, so that it does not matter whether it was read from there.
@compute @workgroup_size(WORKGROUP)
fn main(
  @builtin(workgroup_id) group: vec3<u32>,
  @builtin(num_workgroups) groups: vec3<u32>,
  @builtin(local_invocation_index) local: u32,
) {
  let row = row_index(group, groups, local);
  let m = min(row, params.rows - 1u);
  var own: array<vec4<f32>, OWN_QUADS>;
  //! unroll
  for (var i = 0u; i < OWN_QUADS; i++) {
    let quad = quad_of(i, local);
    if (quad < QUADS) {
      own[i] = vec4<f32>(vec4<R>(sum_parts(m, 4u * quad)));
      if (row < params.rows) { put_quad(0u, m, 4u * quad, own[i]); }
    }
  }
  finish_row(own, row, local);
}
