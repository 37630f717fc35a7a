//! loops: rank
// out[i] = x[offsets[pick(i)] + base(i)], for every index i of `shape`: `pick` walks the dims that the offsets have,
// `base` the others. One invocation moves one element. An offset of -1 gives `missing`.
import package::wgsl::lib::index::{flat_index};
import super::lib::missing::{missing};

alias X = f32;
const WORKGROUP = 64u;

struct Params {
  count: u32,
  rank: u32,
  shape: array<vec4<u32>, 2>,
  x_strides: array<vec4<u32>, 2>, // zero for the dims of the offsets
  pick_strides: array<vec4<u32>, 2>, // zero for the other dims
}

@group(0) @binding(0) var<storage, read> x: array<X>;
@group(0) @binding(1) var<storage, read> offsets: array<i32>;
@group(0) @binding(2) var<storage, read_write> out: array<X>;
@group(0) @binding(3) var<uniform> params: Params;

@compute @workgroup_size(WORKGROUP)
fn main(@builtin(global_invocation_id) id: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>) {
  let i = flat_index(id, groups);
  if (i >= params.count) { return; }
  var rest = i;
  var base = 0u;
  var pick = 0u;
  for (var d = params.rank; d > 0u; d--) {
    let axis = d - 1u;
    let size = params.shape[axis / 4u][axis % 4u];
    let position = rest % size;
    rest /= size;
    base += position * params.x_strides[axis / 4u][axis % 4u];
    pick += position * params.pick_strides[axis / 4u][axis % 4u];
  }
  let offset = offsets[pick];
  if (offset < 0) {
    out[i] = missing();
  } else {
    out[i] = x[base + u32(offset)];
  }
}
