// Adds up the parts of a product with 4-bit weights, as q4_merge.wgsl does, and norms its rows
// (lib/row_normed.wgsl) or converts them to int8 (lib/row_int8.wgsl). LANES invocations keep a row in registers, rounded
// as `out` stores it, so that results are the same as from a row that was read back.
@if(normed) import package::wgsl::lib::row_normed::{finish_row};
@else import super::lib::row_int8::{finish_row};
import package::wgsl::lib::row_registers::{OWN_QUADS, QUADS, quad_of};
import package::wgsl::lib::rows::{WORKGROUP, row_index};
import super::lib::q4_params::{params};
import super::lib::q4_result::{R, put};
import super::lib::q4_parts::{sum_parts};

@compute @workgroup_size(WORKGROUP)
fn main(
  @builtin(workgroup_id) group: vec3<u32>,
  @builtin(num_workgroups) groups: vec3<u32>,
  @builtin(local_invocation_index) local: u32,
) {
  let row = row_index(group, groups, local);
  let m = min(row, params.rows - 1u);
  var quads: array<vec4<f32>, OWN_QUADS>;
  //! unroll
  for (var i = 0u; i < OWN_QUADS; i++) {
    let quad = quad_of(i, local);
    if (quad < QUADS) {
      quads[i] = vec4<f32>(vec4<R>(sum_parts(m, 4u * quad)));
      @if(out) if (row < params.rows) { put(m, 4u * quad, quads[i]); }
    }
  }
  finish_row(quads, row, local);
}
