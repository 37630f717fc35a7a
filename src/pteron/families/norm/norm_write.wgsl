// The end of a norm (lib/norm.wgsl) of rows that are too long for the invocations of norm.wgsl, from each row's mean and the
// sum of its squared distances from it; an RMS norm has no mean. reduce.wgsl has found them. One invocation writes one
// element, and the row's mean and rstd if it is the row's first.
import package::wgsl::lib::index::{flat_index};
import super::lib::norm::{params, put, put_statistics, x};

const WORKGROUP = 64u;

@group(0) @binding(7) var<storage, read> centers: array<f32>;
@group(0) @binding(8) var<storage, read> squares: array<f32>;

@compute @workgroup_size(WORKGROUP)
fn main(@builtin(global_invocation_id) id: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>) {
  let i = flat_index(id, groups);
  let row = i / params.length;
  if (row >= params.rows) { return; }
  let k = i % params.length;
  @if(centers) let center = centers[row];
  @else let center = 0.0;
  let scale = inverseSqrt(squares[row] / f32(params.length) + params.eps);
  put(row, k, (f32(x[i]) - center) * scale);
  if (k == 0u) { put_statistics(row, center, scale); }
}
