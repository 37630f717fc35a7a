// out[i, k] = (w[indices[i], k] - zero(r, k / group)) · scale[r, k / group] with r = indices[i], w in 4 bits. One
// invocation unpacks one byte: the higher nibble is the even column, and both are stored as their value plus 8.
// An index out of range gives NaN.
import package::wgsl::lib::index::{flat_index};
import package::wgsl::lib::nan::{nan};

alias I = i32;
alias S = f32;
alias Z = i32;
alias R = f32;
const WORKGROUP = 64u;

struct Params {
  count: u32, // bytes to unpack
  size: u32, // rows of w
  pitch: u32, // bytes in a row of w
  groups_per_row: u32,
  group: u32, // columns in a group
}

@group(0) @binding(0) var<storage, read> weights: array<u32>;
@group(0) @binding(1) var<storage, read> scales: array<S>;
@group(0) @binding(2) var<storage, read> zero_points: array<Z>;
@group(0) @binding(3) var<storage, read> indices: array<I>;
@group(0) @binding(4) var<storage, read_write> out: array<R>;
@group(0) @binding(5) var<uniform> params: Params;

fn zero(group: u32) -> f32 {
  @if(zero_points) return f32(zero_points[group]);
  @else return 0.0;
}

fn element(nibble: u32, row: u32, column: u32) -> R {
  let group = row * params.groups_per_row + column / params.group;
  return R((f32(nibble & 15u) - 8.0 - zero(group)) * f32(scales[group]));
}

@compute @workgroup_size(WORKGROUP)
fn main(@builtin(global_invocation_id) id: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>) {
  let i = flat_index(id, groups);
  if (i >= params.count) { return; }
  let byte_index = i % params.pitch;
  let index = i32(indices[i / params.pitch]);
  if (index < 0 || index >= i32(params.size)) {
    out[2u * i] = R(nan());
    out[2u * i + 1u] = R(nan());
    return;
  }
  let row = u32(index);
  let byte = row * params.pitch + byte_index;
  let nibbles = weights[byte / 4u] >> (8u * (byte % 4u));
  out[2u * i] = element(nibbles >> 4u, row, 2u * byte_index);
  out[2u * i + 1u] = element(nibbles, row, 2u * byte_index + 1u);
}
