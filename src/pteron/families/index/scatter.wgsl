//! loops: rank + span
// out[base + offset(k)] = combine(out[base + offset(k)], value(k)) for k from `first` to `first + span`, in this
// order, where `base` walks the dims that are not picked. One invocation owns one base, so results do not depend on
// the order of invocations. An index that is out of range writes nothing.
import package::wgsl::lib::index::{flat_index};
import package::wgsl::lib::nan::{is_nan};

alias X = f32;
alias T = f32; // what is computed in
alias I = i32;
alias R = f32;
const WORKGROUP = 64u;

struct Params {
  count: u32,
  rank: u32,
  first: u32,
  end: u32,
  span: u32,
  size: u32, // positions that an index may have
  stride: u32, // elements of `out` from one position to the next
  index_step: u32, // from k to k + 1
  value_step: u32,
  shape: array<vec4<u32>, 2>, // of the bases
  out_strides: array<vec4<u32>, 2>,
  index_strides: array<vec4<u32>, 2>,
  value_strides: array<vec4<u32>, 2>,
}

@group(0) @binding(0) var<storage, read> indices: array<I>;
@group(0) @binding(1) var<storage, read> values: array<X>;
@group(0) @binding(2) var<storage, read_write> out: array<R>;
@group(0) @binding(3) var<uniform> params: Params;

fn combine(a: T, b: T) -> R;

// The better of two numbers; a NaN is better than any.
fn larger(a: T, b: T) -> T { return select(select(b, a, a > b), a, is_nan(f32(a))); }
fn smaller(a: T, b: T) -> T { return select(select(b, a, a < b), a, is_nan(f32(a))); }

@compute @workgroup_size(WORKGROUP)
fn main(@builtin(global_invocation_id) id: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>) {
  var rest = flat_index(id, groups);
  if (rest >= params.count) { return; }
  var base = 0u;
  var index_base = 0u;
  var value_base = 0u;
  for (var d = params.rank; d > 0u; d--) {
    let axis = d - 1u;
    let size = params.shape[axis / 4u][axis % 4u];
    let position = rest % size;
    rest /= size;
    base += position * params.out_strides[axis / 4u][axis % 4u];
    index_base += position * params.index_strides[axis / 4u][axis % 4u];
    value_base += position * params.value_strides[axis / 4u][axis % 4u];
  }
  for (var k = params.first; k < params.end; k++) {
    let index = i32(indices[index_base + k * params.index_step]);
    if (index >= 0 && index < i32(params.size)) {
      let at = base + u32(index) * params.stride;
      out[at] = combine(T(out[at]), T(values[value_base + k * params.value_step]));
    }
  }
}
