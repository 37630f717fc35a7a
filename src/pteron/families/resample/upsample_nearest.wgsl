//! extent x: planes * height * width
//! extent out: planes * out_height * out_width
// out[plane, y, x] = x[plane, ⌊y · step⌋, ⌊x · step⌋]. One invocation writes one element.
import package::wgsl::lib::index::{flat_index};

alias X = f32;
const WORKGROUP = 64u;

struct Params {
  planes: u32,
  height: u32,
  width: u32,
  out_height: u32,
  out_width: u32,
  step_height: f32,
  step_width: f32,
}

@group(0) @binding(0) var<storage, read> x: array<X>;
@group(0) @binding(1) var<storage, read_write> out: array<X>;
@group(0) @binding(2) var<uniform> params: Params;

fn source(i: u32, step: f32, size: u32) -> u32 { return min(u32(f32(i) * step), size - 1u); }

@compute @workgroup_size(WORKGROUP)
fn main(@builtin(global_invocation_id) id: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>) {
  let i = flat_index(id, groups);
  let rows = i / params.out_width;
  let plane = rows / params.out_height;
  if (plane >= params.planes) { return; }
  let row = source(rows % params.out_height, params.step_height, params.height);
  let column = source(i % params.out_width, params.step_width, params.width);
  out[i] = x[(plane * params.height + row) * params.width + column];
}
