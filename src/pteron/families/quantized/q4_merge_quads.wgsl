// Adds up the parts of a product with 4-bit weights, as q4_merge.wgsl does, with four adjacent outputs per
// invocation (lib/q4_quads.wgsl), gated if IS_GATED.
import package::wgsl::lib::index::{flat_index};
import super::lib::q4_params::{params};
import super::lib::q4_quads::{OTHERS, put_quad};
import super::lib::q4_parts::{IS_GATED, sum_parts};

const WORKGROUP = 64u;

@compute @workgroup_size(WORKGROUP)
fn main(@builtin(global_invocation_id) id: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>) {
  let i = flat_index(id, groups);
  let width = select(params.columns, OTHERS, IS_GATED);
  let m = i / (width / 4u);
  let n = i % (width / 4u) * 4u;
  if (m < params.rows) { put_quad(m, n, sum_parts(m, n)); }
}
