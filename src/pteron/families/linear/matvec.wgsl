//! use rows
//! use matmul
// A matrix product (lib/matmul.wgsl) for few rows m: LANES invocations share one output and walk its k
// together, which is the contiguous dim of b.
@compute @workgroup_size(WORKGROUP)
fn main(
  @builtin(workgroup_id) group: vec3<u32>,
  @builtin(num_workgroups) groups: vec3<u32>,
  @builtin(local_invocation_index) local: u32,
) {
  let i = row_index(group, groups, local);
  let lane = local % LANES;
  let n = i % params.columns;
  let m = i / params.columns % params.rows;
  let z = i / params.columns / params.rows;
  let depth = select(0u, params.depth, z < params.batch);
  var sum = 0.0;
  for (var k = lane; k < depth; k += LANES) { sum += load_a(z, m, k) * load_b(z, k, n); }
  sum = row_sum(sum, local);
  if (z < params.batch && lane == 0u) { store(z, m, n, sum); }
}
