//! loops: 2 * ceil(span, LANES) + LANES
// out[part, k] = carried[part] combined with x[part, 0 .. k], for every k of a part. A row's elements are `stride`
// apart, and are cut into `parts` of `span`. LANES invocations share a part: each combines adjacent elements of
// its own, then those of the lanes before it, then walks its elements again and writes.
import package::wgsl::lib::rows::{LANES, Lane, WORKGROUP, row_index};
import super::lib::combine::{combine, neutral};

alias X = f32;
alias R = f32;

struct Params {
  rows: u32,
  parts: u32, // per row
  length: u32, // elements per row
  span: u32, // elements per part
  stride: u32,
}

@group(0) @binding(0) var<storage, read> x: array<X>;
@group(0) @binding(1) var<storage, read> carried: array<Lane>; // per part: what all parts before it come to
@group(0) @binding(2) var<storage, read_write> out: array<R>;
@group(0) @binding(3) var<uniform> params: Params;

var<workgroup> totals: array<Lane, WORKGROUP>;

fn start(part: u32) -> Lane {
  @if(carried) return carried[part];
  @else return neutral();
}

// An element of `out`.
fn stored(value: Lane) -> R;

@compute @workgroup_size(WORKGROUP)
fn main(
  @builtin(workgroup_id) group: vec3<u32>,
  @builtin(num_workgroups) groups: vec3<u32>,
  @builtin(local_invocation_index) local: u32,
) {
  let part = row_index(group, groups, local);
  let inside = part < params.rows * params.parts;
  let lane = local % LANES;
  let row = min(part / params.parts, params.rows - 1u);
  let base = row / params.stride * params.stride * params.length + row % params.stride;
  let first = part % params.parts * params.span;
  let end = select(0u, min(first + params.span, params.length), inside);
  let share = (params.span + LANES - 1u) / LANES;
  let from_index = min(first + lane * share, end);
  let to_index = min(from_index + share, end);
  var sum = neutral();
  if (LANES > 1u) {
    for (var k = from_index; k < to_index; k++) { sum = combine(sum, Lane(x[base + k * params.stride])); }
    totals[local] = sum;
    workgroupBarrier();
    sum = neutral();
    for (var l = 0u; l < lane; l++) { sum = combine(sum, totals[local - lane + l]); }
  }
  sum = combine(start(min(part, params.rows * params.parts - 1u)), sum);
  for (var k = from_index; k < to_index; k++) {
    sum = combine(sum, Lane(x[base + k * params.stride]));
    out[base + k * params.stride] = stored(sum);
  }
}
