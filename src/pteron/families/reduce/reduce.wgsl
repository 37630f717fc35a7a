//! use rows
// out[row] = finish(merge over k of x[row's k-th element]). A row is one output element: its place in x
// comes from the kept dims, its elements from the reduced dims. LANES invocations share a row and merge
// values of type Lane.
alias X = f32;
alias R = f32;

struct Params {
  rows: u32,
  length: u32,
  kept_rank: u32,
  reduced_rank: u32,
  kept_shape: vec4<u32>,
  kept_strides: vec4<u32>,
  reduced_shape: vec4<u32>,
  reduced_strides: vec4<u32>,
}

@group(0) @binding(0) var<storage, read> x: array<X>;
@group(0) @binding(1) var<storage, read_write> out: array<R>;
@group(0) @binding(2) var<uniform> params: Params;

fn offset(index: u32, rank: u32, shape: vec4<u32>, strides: vec4<u32>) -> u32 {
  var rest = index;
  var result = 0u;
  for (var d = rank; d > 0u; d--) {
    result += (rest % shape[d - 1u]) * strides[d - 1u];
    rest /= shape[d - 1u];
  }
  return result;
}

fn element(row: u32, k: u32) -> Lane {
  let base = offset(row, params.kept_rank, params.kept_shape, params.kept_strides);
  return Lane(x[base + offset(k, params.reduced_rank, params.reduced_shape, params.reduced_strides)]);
}

// What a lane starts from; `value` is an element of its row, for operators that any element may open.
fn start(value: Lane) -> Lane { return Lane(); }
fn merge(a: Lane, b: Lane) -> Lane { return a + b; }
fn merge_lanes(value: Lane, local: u32) -> Lane { return row_sum(value, local); }
fn finish(total: Lane) -> Lane { return total; }

@compute @workgroup_size(WORKGROUP)
fn main(
  @builtin(workgroup_id) group: vec3<u32>,
  @builtin(num_workgroups) groups: vec3<u32>,
  @builtin(local_invocation_index) local: u32,
) {
  let row = row_index(group, groups, local);
  let inside = row < params.rows;
  let lane = local % LANES;
  let length = select(0u, params.length, inside);
  var total = start(element(min(row, params.rows - 1u), min(lane, max(params.length, 1u) - 1u)));
  for (var k = lane; k < length; k += LANES) { total = merge(total, element(row, k)); }
  total = merge_lanes(total, local);
  if (inside && lane == 0u) { out[row] = R(finish(total)); }
}
