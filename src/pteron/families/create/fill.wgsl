// out[i] = first + i · step: one number everywhere, or numbers at even steps. One invocation writes one element.
// Whole numbers are computed as such, so that they are exact whatever type they are stored in.
import package::wgsl::lib::index::{flat_index};

alias R = f32;
const WORKGROUP = 64u;
override IS_WHOLE: bool = false; // whether the numbers are whole

struct Params {
  count: u32,
  integer_first: i32, // if IS_WHOLE,
  integer_step: i32,
  first: f32, // else
  step: f32,
}

@group(0) @binding(0) var<storage, read_write> out: array<R>;
@group(0) @binding(1) var<uniform> params: Params;

@compute @workgroup_size(WORKGROUP)
fn main(@builtin(global_invocation_id) id: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>) {
  let i = flat_index(id, groups);
  if (i >= params.count) { return; }
  @if(IS_WHOLE) out[i] = R(params.integer_first + i32(i) * params.integer_step);
  @else out[i] = R(params.first + f32(i) * params.step);
}
