// Adds up the parts of a product with 4-bit weights and runs the epilogue (lib/q4_result.wgsl). One invocation computes one
// output or, BY_QUADS, four adjacent ones, gated if IS_GATED.
import package::wgsl::lib::index::{flat_index};
import super::lib::q4_params::{params};
import super::lib::q4_parts::{IS_GATED, sum_parts};
import super::lib::q4_result::{OTHERS, UNIT, put};

const WORKGROUP = 64u;

@compute @workgroup_size(WORKGROUP)
fn main(@builtin(global_invocation_id) id: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>) {
  let i = flat_index(id, groups);
  let width = select(params.columns, OTHERS, IS_GATED) / UNIT;
  let m = i / width;
  let n = i % width * UNIT;
  if (m < params.rows) { put(m, n, sum_parts(m, n)); }
}
