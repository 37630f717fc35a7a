//! extent cosines: steps * columns
//! extent sines: steps * columns
//! extent places: 2 * (count // (2 * columns))
//! extent out: count
// out[row] = (cosines[position of the row], sines[position of the row]). One invocation moves one element.
import package::wgsl::lib::index::{flat_index};

alias C = f32;
const WORKGROUP = 64u;

struct Params {
  count: u32,
  steps: u32, // rows of the tables
  columns: u32, // of each table
}

@group(0) @binding(0) var<storage, read> cosines: array<C>;
@group(0) @binding(1) var<storage, read> sines: array<C>;
@group(0) @binding(2) var<storage, read> places: array<vec2<i32>>;
@group(0) @binding(3) var<storage, read_write> out: array<C>;
@group(0) @binding(4) var<uniform> params: Params;

@compute @workgroup_size(WORKGROUP)
fn main(@builtin(global_invocation_id) id: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>) {
  let i = flat_index(id, groups);
  if (i >= params.count) { return; }
  let column = i % (2u * params.columns);
  let position = clamp(places[i / (2u * params.columns)].x, 0, i32(params.steps) - 1);
  let base = u32(position) * params.columns;
  if (column < params.columns) {
    out[i] = cosines[base + column];
  } else {
    out[i] = sines[base + column - params.columns];
  }
}
