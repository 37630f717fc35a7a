//! use rows
//! use matmul
//! use matmul_a
//! use matmul_b
//! loops: ceil(span, LANES) + 8
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
  let slice = i / params.columns / params.rows;
  let inside = slice < params.batch * params.parts;
  let z = batch_of(slice);
  let k_first = part_of(slice) * params.span;
  let k_end = select(0u, min(k_first + params.span, params.depth), inside);
  var sum = 0.0;
  for (var k = k_first + lane; k < k_end; k += LANES) { sum += load_a(z, m, k) * load_b(z, k, n); }
  let total = row_sum(sum, local);
  if (inside && lane == 0u) { store(slice, m, n, total); }
}
