//! extent x: 512
//! extent out: 256
// A product of two 16 × 16 matrices, of which x has the second after the first. Four subgroups compute the same.
@if(IS_EMULATED) import package::wgsl::lib::matrix_emulated::{Sums, begin_matrices, left_at, multiplied, put_halves, put_sums, right_at, sums_at};
@else import package::wgsl::lib::matrix_cores::{Sums, begin_matrices, left_at, multiplied, put_halves, put_sums, right_at, sums_at};

override IS_EMULATED: bool = false;
const K_PITCH = 40u;

@group(0) @binding(0) var<storage, read> x: array<vec4<f32>>;
@group(0) @binding(1) var<storage, read_write> out: array<vec4<f32>>;

@compute @workgroup_size(128)
fn main(@builtin(local_invocation_index) local: u32) {
  begin_matrices(local);
  put_halves(local / 4u * K_PITCH + local % 4u * 4u, x[local]);
  workgroupBarrier();
  var sums: Sums;
  sums = multiplied(left_at(0u, K_PITCH), right_at(16u * K_PITCH, K_PITCH), sums);
  workgroupBarrier();
  put_sums(local / 32u * 256u, sums);
  workgroupBarrier();
  if (local < 64u) { out[local] = sums_at(local / 16u * 256u + 4u * local); }
}
