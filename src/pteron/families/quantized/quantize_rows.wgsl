//! use row_int8
//! extent x: 4 * rows * QUADS
// Rows of x as int8, normed where there is a gain: lib/row_int8.wgsl. LANES invocations share a row and hold it.
struct Params {
  rows: u32,
}

@group(0) @binding(0) var<storage, read> x: array<vec4<f32>>;
@group(0) @binding(1) var<uniform> params: Params;

@compute @workgroup_size(WORKGROUP)
fn main(
  @builtin(workgroup_id) group: vec3<u32>,
  @builtin(num_workgroups) groups: vec3<u32>,
  @builtin(local_invocation_index) local: u32,
) {
  let row = row_index(group, groups, local);
  let m = min(row, params.rows - 1u);
  var held: array<vec4<f32>, HELD>;
  //! unroll
  for (var i = 0u; i < HELD; i++) {
    let quad = quad_of(i, local);
    if (quad < QUADS) { held[i] = x[m * QUADS + quad]; }
  }
  leave_row(held, row, local);
}
