//! loops: rank
// out[i] = a[i] where condition[i] holds, b[i] elsewhere, with broadcasting. One invocation computes one
// element. Sizes and strides describe the walk over the output, merged to as few dims as possible.
import package::wgsl::lib::index::{flat_index};

alias C = u32;
alias A = f32;
alias B = f32;
alias R = f32;
const WORKGROUP = 64u;

struct Params {
  count: u32,
  rank: u32,
  shape: array<vec4<u32>, 2>,
  condition_strides: array<vec4<u32>, 2>,
  a_strides: array<vec4<u32>, 2>,
  b_strides: array<vec4<u32>, 2>,
}

@group(0) @binding(0) var<storage, read> condition: array<C>;
@group(0) @binding(1) var<storage, read> a: array<A>;
@group(0) @binding(2) var<storage, read> b: array<B>;
@group(0) @binding(3) var<storage, read_write> out: array<R>;
@group(0) @binding(4) var<uniform> params: Params;

@compute @workgroup_size(WORKGROUP)
fn main(@builtin(global_invocation_id) id: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>) {
  let i = flat_index(id, groups);
  if (i >= params.count) { return; }
  var rest = i;
  var condition_index = 0u;
  var a_index = 0u;
  var b_index = 0u;
  for (var d = params.rank; d > 0u; d--) {
    let axis = d - 1u;
    let size = params.shape[axis / 4u][axis % 4u];
    let position = rest % size;
    rest /= size;
    condition_index += position * params.condition_strides[axis / 4u][axis % 4u];
    a_index += position * params.a_strides[axis / 4u][axis % 4u];
    b_index += position * params.b_strides[axis / 4u][axis % 4u];
  }
  if (condition[condition_index] != C()) {
    out[i] = R(a[a_index]);
  } else {
    out[i] = R(b[b_index]);
  }
}
