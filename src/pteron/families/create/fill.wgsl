//! use index
// out[i] = value(i): one number everywhere, or numbers at even steps. One invocation writes one element.
// Whole numbers are computed as such, so that they are exact whatever type they are stored in.
alias R = f32;
const WORKGROUP = 64u;

struct Params {
  count: u32,
  integer_first: i32, // where the numbers are whole,
  integer_step: i32,
  first: f32, // and where they are not
  step: f32,
}

@group(0) @binding(0) var<storage, read_write> out: array<R>;
@group(0) @binding(1) var<uniform> params: Params;

fn value(i: u32) -> R { return R(params.first + f32(i) * params.step); }

@compute @workgroup_size(WORKGROUP)
fn main(@builtin(global_invocation_id) id: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>) {
  let i = flat_index(id, groups);
  if (i >= params.count) { return; }
  out[i] = value(i);
}
