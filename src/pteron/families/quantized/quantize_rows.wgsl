//! use row_int8
//! extent x: 8 * rows * WORDS
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
  var held: array<vec4<f32>, 2u * TURNS>;
  //! unroll
  for (var i = 0u; i < 2u * TURNS; i++) {
    let word = local % LANES + i / 2u * LANES;
    if (word < WORDS) { held[i] = x[2u * (m * WORDS + word) + i % 2u]; }
  }
  leave_row(held, row, local);
}
