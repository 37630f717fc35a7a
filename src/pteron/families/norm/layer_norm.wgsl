//! loops: 3 * ceil(length, LANES) + 2 * ceil(length, BLOCK * LANES) + 16
// out[k] = (x[k] - mean) · rstd · weight[c] + bias[c] over each row of `length` elements, where c is the element's
// channel (lib/affine.wgsl) and rstd = 1 / sqrt(variance + eps); the row's mean and rstd are results too. LANES
// invocations share a row. Longer rows: norm_write.wgsl.
import package::wgsl::lib::rows::{LANES, WORKGROUP, row_index, row_sum};
import package::wgsl::lib::sums::{BLOCK, carry};
import super::lib::affine::{affine, channel};

alias X = f32;
alias R = f32;
alias S = f32;

struct Params {
  rows: u32,
  length: u32,
  eps: f32,
  @if(BY_GROUPS) cycle: u32, // rows that contain all channels once
  @if(BY_GROUPS) plane: u32, // elements that share a channel
}

@group(0) @binding(0) var<storage, read> x: array<X>;
@group(0) @binding(3) var<storage, read_write> out: array<R>;
@group(0) @binding(4) var<storage, read_write> mean: array<S>;
@group(0) @binding(5) var<storage, read_write> rstd: array<S>;
@group(0) @binding(6) var<uniform> params: Params;

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
  let base = row * params.length;
  var sums = vec2(0.0);
  for (var block = lane; block < length; block += BLOCK * LANES) {
    var sum = 0.0;
    for (var k = block; k < min(block + BLOCK * LANES, length); k += LANES) { sum += f32(x[base + k]); }
    sums = carry(sums, sum, block / (BLOCK * LANES));
  }
  let center = row_sum(sums.x + sums.y, local) / f32(params.length);
  var squares = vec2(0.0);
  for (var block = lane; block < length; block += BLOCK * LANES) {
    var sum = 0.0;
    for (var k = block; k < min(block + BLOCK * LANES, length); k += LANES) {
      let value = f32(x[base + k]) - center;
      sum += value * value;
    }
    squares = carry(squares, sum, block / (BLOCK * LANES));
  }
  let scale = inverseSqrt(row_sum(squares.x + squares.y, local) / f32(params.length) + params.eps);
  for (var k = lane; k < length; k += LANES) {
    out[base + k] = R(affine((f32(x[base + k]) - center) * scale, channel(row, k)));
  }
  if (inside && lane == 0u) {
    mean[row] = S(center);
    rstd[row] = S(scale);
  }
}
