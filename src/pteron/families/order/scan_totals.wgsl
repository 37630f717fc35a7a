//! loops: parts
// carried[row, p] = the parts before p of a row combined, where the last element of each part has the part's own
// total. One invocation walks the parts of one row.
import package::wgsl::lib::index::{flat_index};
import super::lib::combine::{combine, neutral};

alias Lane = f32;
const WORKGROUP = 64u;

struct Params {
  rows: u32,
  parts: u32,
}

@group(0) @binding(0) var<storage, read> totals: array<Lane>;
@group(0) @binding(1) var<storage, read_write> carried: array<Lane>;
@group(0) @binding(2) var<uniform> params: Params;

@compute @workgroup_size(WORKGROUP)
fn main(@builtin(global_invocation_id) id: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>) {
  let row = flat_index(id, groups);
  if (row >= params.rows) { return; }
  var sum = neutral();
  for (var p = 0u; p < params.parts; p++) {
    carried[row * params.parts + p] = sum;
    sum = combine(sum, totals[row * params.parts + p]);
  }
}
