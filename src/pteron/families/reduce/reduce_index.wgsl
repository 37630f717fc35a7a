//! use index
//! use nan
// out[row] = the index k of the row's first best element, where a NaN is better than any number.
// One invocation walks one row, whose elements lie `stride` apart.
alias X = f32;
alias T = f32; // what is compared
alias R = i32;
const WORKGROUP = 64u;

struct Params {
  rows: u32,
  length: u32,
  stride: u32,
}

@group(0) @binding(0) var<storage, read> x: array<X>;
@group(0) @binding(1) var<storage, read_write> out: array<R>;
@group(0) @binding(2) var<uniform> params: Params;

fn better(a: T, b: T) -> bool { return a > b; }

@compute @workgroup_size(WORKGROUP)
fn main(@builtin(global_invocation_id) id: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>) {
  let row = flat_index(id, groups);
  if (row >= params.rows) { return; }
  let base = row / params.stride * params.stride * params.length + row % params.stride;
  var best = T(x[base]);
  var index = 0u;
  for (var k = 1u; k < params.length; k++) {
    let value = T(x[base + k * params.stride]);
    if (!is_nan(f32(best)) && (better(value, best) || is_nan(f32(value)))) {
      best = value;
      index = k;
    }
  }
  out[row] = R(index);
}
