//! extent x: 4 * rows * QUADS
// Loads rows of x into registers (row_registers.wgsl). The importing file has `finish_row`, which processes each of them.
import super::row_registers::{OWN_QUADS, QUADS, quad_of};
import super::rows::{WORKGROUP, row_index};

alias X = f32;

struct Params {
  rows: u32,
}

@group(0) @binding(0) var<storage, read> x: array<vec4<X>>;
@group(0) @binding(1) var<uniform> params: Params;

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
    if (quad < QUADS) { own[i] = vec4<f32>(x[m * QUADS + quad]); }
  }
  finish_row(own, row, local);
}
