//! loops: span
// totals[part] = the elements of a part combined. A row's elements are `stride` apart and cut into `parts` of
// `span`. One invocation walks one part.
import package::wgsl::lib::index::{flat_index};
import super::lib::combine::{combine, neutral};

alias X = f32;
alias Lane = f32;
const WORKGROUP = 64u;

struct Params {
  rows: u32,
  parts: u32, // per row
  length: u32, // elements per row
  span: u32, // elements per part
  stride: u32,
}

@group(0) @binding(0) var<storage, read> x: array<X>;
@group(0) @binding(1) var<storage, read_write> totals: array<Lane>;
@group(0) @binding(2) var<uniform> params: Params;

@compute @workgroup_size(WORKGROUP)
fn main(@builtin(global_invocation_id) id: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>) {
  let part = flat_index(id, groups);
  if (part >= params.rows * params.parts) { return; }
  let row = part / params.parts;
  let base = row / params.stride * params.stride * params.length + row % params.stride;
  let first = part % params.parts * params.span;
  var sum = neutral();
  for (var k = first; k < min(first + params.span, params.length); k++) {
    sum = combine(sum, Lane(x[base + k * params.stride]));
  }
  totals[part] = sum;
}
