//! loops: 2 * ceil(length, LANES) + ceil(length, BLOCK * LANES) + 8
// out[k] = x[k] · weight[k] / sqrt(mean(x²) + eps) over each row of `length` elements.
// LANES invocations share a row. Longer rows: norm_write.wgsl.
import package::wgsl::lib::rows::{LANES, WORKGROUP, row_index, row_sum};
import package::wgsl::lib::sums::{BLOCK, carry};

alias X = f32;
alias W = f32;
alias R = f32;

struct Params {
  rows: u32,
  length: u32,
  eps: f32,
}

@group(0) @binding(0) var<storage, read> x: array<X>;
@group(0) @binding(1) var<storage, read> weight: array<W>;
@group(0) @binding(2) var<storage, read_write> out: array<R>;
@group(0) @binding(3) var<uniform> params: Params;

@compute @workgroup_size(WORKGROUP)
fn main(
  @builtin(workgroup_id) group: vec3<u32>,
  @builtin(num_workgroups) groups: vec3<u32>,
  @builtin(local_invocation_index) local: u32,
) {
  let row = row_index(group, groups, local);
  let lane = local % LANES;
  let length = select(0u, params.length, row < params.rows);
  let base = row * params.length;
  var squares = vec2(0.0);
  for (var block = lane; block < length; block += BLOCK * LANES) {
    var sum = 0.0;
    for (var k = block; k < min(block + BLOCK * LANES, length); k += LANES) {
      let value = f32(x[base + k]);
      sum += value * value;
    }
    squares = carry(squares, sum, block / (BLOCK * LANES));
  }
  let scale = inverseSqrt(row_sum(squares.x + squares.y, local) / f32(params.length) + params.eps);
  for (var k = lane; k < length; k += LANES) { out[base + k] = R(f32(x[base + k]) * scale * f32(weight[k])); }
}
