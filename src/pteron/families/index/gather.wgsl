// out[o, i, j] = x[o, indices[i], j]: whole slices of a dim, picked by index. One invocation moves one
// element. An index that is out of range gives `missing`.
import package::wgsl::lib::index::{flat_index};
import super::lib::missing::{missing};

alias X = f32;
alias I = i32;
const WORKGROUP = 64u;
override FROM_END: bool = false; // negative indices count from the end of the dim

struct Params {
  count: u32,
  picks: u32, // indices
  size: u32, // of the dim they pick from
  inner: u32, // elements per slice
}

@group(0) @binding(0) var<storage, read> x: array<X>;
@group(0) @binding(1) var<storage, read> indices: array<I>;
@group(0) @binding(2) var<storage, read_write> out: array<X>;
@group(0) @binding(3) var<uniform> params: Params;

@compute @workgroup_size(WORKGROUP)
fn main(@builtin(global_invocation_id) id: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>) {
  let i = flat_index(id, groups);
  if (i >= params.count) { return; }
  let column = i % params.inner;
  let pick = i / params.inner % params.picks;
  let outer = i / params.inner / params.picks;
  var index = i32(indices[pick]);
  if (FROM_END && index < 0) { index += i32(params.size); }
  if (index < 0 || index >= i32(params.size)) {
    out[i] = missing();
  } else {
    out[i] = x[(outer * params.size + u32(index)) * params.inner + column];
  }
}
