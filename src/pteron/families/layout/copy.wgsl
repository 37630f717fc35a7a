//! loops: rank
// out[out_offset + Σ iₐ·out_strideₐ] = convert(x[x_offset + Σ iₐ·x_strideₐ]) for every index i of `shape`.
// One invocation moves one element. Strides may be zero (a broadcast) or negative (a flip). `convert` is R(value), or how
// a value becomes a boolean or a narrow integer.
import package::wgsl::lib::index::{flat_index};

alias X = f32;
alias R = f32;
const WORKGROUP = 64u;

struct Params {
  count: u32,
  rank: u32,
  x_offset: i32,
  out_offset: i32,
  shape: array<vec4<u32>, 4>, // 16 dims: a repeat makes two of each
  x_strides: array<vec4<i32>, 4>,
  out_strides: array<vec4<i32>, 4>,
}

@group(0) @binding(0) var<storage, read> x: array<X>;
@group(0) @binding(1) var<storage, read_write> out: array<R>;
@group(0) @binding(2) var<uniform> params: Params;

fn convert(value: X) -> R;

@compute @workgroup_size(WORKGROUP)
fn main(@builtin(global_invocation_id) id: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>) {
  var rest = flat_index(id, groups);
  if (rest >= params.count) { return; }
  var from_index = params.x_offset;
  var to_index = params.out_offset;
  for (var d = params.rank; d > 0u; d--) {
    let axis = d - 1u;
    let size = params.shape[axis / 4u][axis % 4u];
    let i = i32(rest % size);
    rest /= size;
    from_index += i * params.x_strides[axis / 4u][axis % 4u];
    to_index += i * params.out_strides[axis / 4u][axis % 4u];
  }
  out[to_index] = convert(x[from_index]);
}
