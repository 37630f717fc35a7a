// values[row, r] = x[row, order[row, r]] and indices[row, r] = order[row, r] for the first `kept` places of each row.
// Elements of a row are `stride` apart in x, values and indices. One invocation moves one element.
import package::wgsl::lib::index::{flat_index};

alias X = f32;
alias I = i32;
const WORKGROUP = 64u;

struct Params {
  count: u32,
  kept: u32,
  length: u32,
  stride: u32,
  places: u32, // of a row of `order`
}

@group(0) @binding(0) var<storage, read> x: array<X>;
@group(0) @binding(1) var<storage, read> order: array<i32>;
@group(0) @binding(2) var<storage, read_write> values: array<X>;
@group(0) @binding(3) var<storage, read_write> indices: array<I>;
@group(0) @binding(4) var<uniform> params: Params;

@compute @workgroup_size(WORKGROUP)
fn main(@builtin(global_invocation_id) id: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>) {
  let i = flat_index(id, groups);
  if (i >= params.count) { return; }
  let row = i / params.kept;
  let r = i % params.kept;
  let k = order[row * params.places + r];
  let outer = row / params.stride * params.stride;
  let inner = row % params.stride;
  let to = outer * params.kept + inner + r * params.stride;
  values[to] = x[outer * params.length + inner + u32(k) * params.stride];
  indices[to] = I(k);
}
