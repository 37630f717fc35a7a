//! loops: rank
// out[i] = x[source(i - before)] for every index i of `shape`: `source`, the formula of an operator, finds a position inside of x
// for those outside. One invocation moves one element.
import package::wgsl::lib::index::{flat_index};

alias X = f32;
const WORKGROUP = 64u;

struct Params {
  count: u32,
  rank: u32,
  shape: array<vec4<u32>, 2>,
  x_shape: array<vec4<i32>, 2>,
  x_strides: array<vec4<u32>, 2>,
  before: array<vec4<i32>, 2>, // positions that are added in front of each dim
}

@group(0) @binding(0) var<storage, read> x: array<X>;
@group(0) @binding(1) var<storage, read_write> out: array<X>;
@group(0) @binding(2) var<uniform> params: Params;

fn source(position: i32, size: i32) -> i32;

@compute @workgroup_size(WORKGROUP)
fn main(@builtin(global_invocation_id) id: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>) {
  let i = flat_index(id, groups);
  if (i >= params.count) { return; }
  var rest = i;
  var at = 0u;
  for (var d = params.rank; d > 0u; d--) {
    let axis = d - 1u;
    let size = params.shape[axis / 4u][axis % 4u];
    let position = i32(rest % size) - params.before[axis / 4u][axis % 4u];
    rest /= size;
    at += u32(source(position, params.x_shape[axis / 4u][axis % 4u])) * params.x_strides[axis / 4u][axis % 4u];
  }
  out[i] = x[at];
}
