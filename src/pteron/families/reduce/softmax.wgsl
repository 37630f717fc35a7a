//! loops: 3 * ceil(length, LANES) + ceil(length, BLOCK * LANES) + 16
// out[k] = exp(x[k] - m) / Σ exp(x - m) over a row's elements, m their maximum, or the logarithm of it.
// A row's elements are `stride` apart: x and out are [rows / stride][length][stride]. LANES invocations share a row; those of
// rows past the end go on with a length of 0, for the barriers. Longer rows: softmax_write.wgsl.
import package::wgsl::lib::logarithm::{log_of};
import package::wgsl::lib::rows::{LANES, WORKGROUP, larger, row_index, row_max, row_sum};
import package::wgsl::lib::sums::{BLOCK, carry};

alias X = f32;
alias R = f32;

struct Params {
  rows: u32,
  length: u32,
  stride: u32,
}

@group(0) @binding(0) var<storage, read> x: array<X>;
@group(0) @binding(1) var<storage, read_write> out: array<R>;
@group(0) @binding(2) var<uniform> params: Params;

// A formula that the launch gives: an output from x - m and the sum of the row's exponentials.
fn result(shifted: f32, total: f32) -> f32;

@compute @workgroup_size(WORKGROUP)
fn main(
  @builtin(workgroup_id) group: vec3<u32>,
  @builtin(num_workgroups) groups: vec3<u32>,
  @builtin(local_invocation_index) local: u32,
) {
  let row = row_index(group, groups, local);
  let lane = local % LANES;
  let length = select(0u, params.length, row < params.rows);
  let base = row / params.stride * params.stride * params.length + row % params.stride;
  var most = f32(x[base]);
  for (var k = lane; k < length; k += LANES) { most = larger(most, f32(x[base + k * params.stride])); }
  most = row_max(most, local);
  var sums = vec2(0.0);
  for (var block = lane; block < length; block += BLOCK * LANES) {
    var sum = 0.0;
    for (var k = block; k < min(block + BLOCK * LANES, length); k += LANES) {
      sum += exp(f32(x[base + k * params.stride]) - most);
    }
    sums = carry(sums, sum, block / (BLOCK * LANES));
  }
  let total = row_sum(sums.x + sums.y, local);
  for (var k = lane; k < length; k += LANES) {
    let i = base + k * params.stride;
    out[i] = R(result(f32(x[i]) - most, total));
  }
}
