//! loops: 3 * ceil(length, LANES) + 2 * ceil(length, BLOCK * LANES) + 16
// A norm over rows (lib/norm.wgsl). LANES invocations share a row; those of rows past the end go on with a length of 0, for
// the barriers. The library's `put` stores: an epilogue goes there. Longer rows: norm_write.wgsl.
import package::wgsl::lib::rows::{LANES, WORKGROUP, row_index, row_sum};
import package::wgsl::lib::sums::{BLOCK, carry};
import super::lib::norm::{params, put, put_statistics, x};

// The sum over a row of its distances from `center`, or of their squares.
fn sum_of(base: u32, length: u32, local: u32, center: f32, are_squares: bool) -> f32 {
  var sums = vec2(0.0);
  for (var block = local % LANES; block < length; block += BLOCK * LANES) {
    var sum = 0.0;
    for (var k = block; k < min(block + BLOCK * LANES, length); k += LANES) {
      let value = f32(x[base + k]) - center;
      sum += select(value, value * value, are_squares);
    }
    sums = carry(sums, sum, block / (BLOCK * LANES));
  }
  return row_sum(sums.x + sums.y, local);
}

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
  @if(mean) let center = sum_of(base, length, local, 0.0, false) / f32(params.length);
  @else let center = 0.0;
  let scale = inverseSqrt(sum_of(base, length, local, center, true) / f32(params.length) + params.eps);
  for (var k = lane; k < length; k += LANES) { put(row, k, (f32(x[base + k]) - center) * scale); }
  if (row < params.rows && lane == 0u) { put_statistics(row, center, scale); }
}
