//! use rows
// The affine int8 parameters of each row: with m and M its least and greatest element, zero included,
// scale = max((M - m) / (high - low), eps), zero = clamp(low - round(m / scale), low, high). LANES
// invocations share a row.
alias X = f32;
alias S = f32;
alias Z = i32;

struct Params {
  rows: u32,
  length: u32,
  low: f32,
  high: f32,
  eps: f32,
}

@group(0) @binding(0) var<storage, read> x: array<X>;
@group(0) @binding(1) var<storage, read_write> scale: array<S>;
@group(0) @binding(2) var<storage, read_write> zero_point: array<Z>;
@group(0) @binding(3) var<uniform> params: Params;

@compute @workgroup_size(WORKGROUP)
fn main(
  @builtin(workgroup_id) group: vec3<u32>,
  @builtin(num_workgroups) groups: vec3<u32>,
  @builtin(local_invocation_index) local: u32,
) {
  let row = row_index(group, groups, local);
  let lane = local % LANES;
  let inside = row < params.rows;
  let length = select(0u, params.length, inside);
  var most = 0.0;
  var least = 0.0;
  for (var k = lane; k < length; k += LANES) {
    let value = f32(x[row * params.length + k]);
    most = max(most, value);
    least = min(least, value);
  }
  most = row_max(most, local);
  least = -row_max(-least, local);
  if (inside && lane == 0u) {
    let step = max((most - least) / (params.high - params.low), params.eps);
    scale[row] = S(step);
    zero_point[row] = Z(clamp(params.low - round(least / step), params.low, params.high));
  }
}
