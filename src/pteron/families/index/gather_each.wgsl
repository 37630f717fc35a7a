//! loops: rank
// out[i] = x[i with its position along one dim replaced by indices[i]], for every index i of `shape`. One
// invocation moves one element. An index that is out of range gives `missing`.
import package::wgsl::lib::index::{flat_index};
import super::lib::missing::{missing};

alias X = f32;
alias I = i32;
const WORKGROUP = 64u;

struct Params {
  count: u32,
  rank: u32,
  size: u32, // of the dim that is picked from
  stride: u32, // elements from one position of that dim to the next
  shape: array<vec4<u32>, 2>,
  x_strides: array<vec4<u32>, 2>, // zero for that dim
}

@group(0) @binding(0) var<storage, read> x: array<X>;
@group(0) @binding(1) var<storage, read> indices: array<I>;
@group(0) @binding(2) var<storage, read_write> out: array<X>;
@group(0) @binding(3) var<uniform> params: Params;

@compute @workgroup_size(WORKGROUP)
fn main(@builtin(global_invocation_id) id: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>) {
  let i = flat_index(id, groups);
  if (i >= params.count) { return; }
  var rest = i;
  var base = 0u;
  for (var d = params.rank; d > 0u; d--) {
    let axis = d - 1u;
    let size = params.shape[axis / 4u][axis % 4u];
    base += rest % size * params.x_strides[axis / 4u][axis % 4u];
    rest /= size;
  }
  let index = i32(indices[i]);
  if (index < 0 || index >= i32(params.size)) {
    out[i] = missing();
  } else {
    out[i] = x[base + u32(index) * params.stride];
  }
}
