//! loops: ceil(span, LANES) + 8
//! extent x: rows * depth
//! extent a: adapters * rank * depth
//! extent ranks: adapters
//! extent which: first + rows
//! extent out: parts * rows * rank
// out[part, m, j] = the sum over a part of k of x[m, k] · a[which[m] - 1, j, k]. A row whose adapter is 0 or has a
// lower rank reads nothing and gets 0. LANES invocations share one output.
import package::wgsl::lib::rows::{WORKGROUP, row_index, row_sum};

alias X = f32;

struct Params {
  rows: u32,
  depth: u32,
  adapters: u32,
  rank: u32, // the highest
  first: u32, // of `which`
  parts: u32,
  span: u32,
}

@group(0) @binding(0) var<storage, read> x: array<X>;
@group(0) @binding(1) var<storage, read> a: array<f32>;
@group(0) @binding(2) var<storage, read> ranks: array<i32>;
@group(0) @binding(3) var<storage, read> which: array<i32>;
@group(0) @binding(4) var<storage, read_write> out: array<f32>;
@group(0) @binding(5) var<uniform> params: Params;

@compute @workgroup_size(WORKGROUP)
fn main(
  @builtin(workgroup_id) group: vec3<u32>,
  @builtin(num_workgroups) groups: vec3<u32>,
  @builtin(local_invocation_index) local: u32,
) {
  let i = row_index(group, groups, local);
  let lane = local % LANES;
  let j = i % params.rank;
  let m = i / params.rank % params.rows;
  let part = i / params.rank / params.rows;
  let number = which[params.first + m];
  let adapter = u32(clamp(number, 1, i32(params.adapters))) - 1u;
  let is_used = part < params.parts && number > 0 && i32(j) < ranks[adapter];
  let k_first = part * params.span;
  let k_end = select(0u, min(k_first + params.span, params.depth), is_used);
  let row = (adapter * params.rank + j) * params.depth;
  var sum = 0.0;
  for (var k = k_first + lane; k < k_end; k += LANES) { sum += f32(x[m * params.depth + k]) * a[row + k]; }
  let total = row_sum(sum, local);
  if (part < params.parts && lane == 0u) { out[i] = total; }
}
