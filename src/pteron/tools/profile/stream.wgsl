// out[i] = x[i]. One invocation moves four floats.
import package::wgsl::lib::index::{flat_index};

const WORKGROUP = 256u;

struct Params {
  quads: u32,
}

@group(0) @binding(0) var<storage, read> x: array<vec4<f32>>;
@group(0) @binding(1) var<storage, read_write> out: array<vec4<f32>>;
@group(0) @binding(2) var<uniform> params: Params;

@compute @workgroup_size(WORKGROUP)
fn main(@builtin(global_invocation_id) id: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>) {
  let i = flat_index(id, groups);
  if (i >= params.quads) { return; }
  out[i] = x[i];
}
