//! use index
//! use convolution
//! loops: parts
//! extent sums: parts * batch * group_count * filters * out_height * out_width
//! extent out: batch * group_count * filters * out_height * out_width
// A convolution (lib/convolution.wgsl) from the sums of its parts. One invocation finishes one output.
const WORKGROUP = 64u;

@group(0) @binding(5) var<storage, read> sums: array<f32>;

@compute @workgroup_size(WORKGROUP)
fn main(@builtin(global_invocation_id) id: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>) {
  let i = flat_index(id, groups);
  let count = pixel_count() * params.group_count * params.filters;
  if (i >= count) { return; }
  var sum = 0.0;
  for (var part = 0u; part < params.parts; part++) { sum += sums[part * count + i]; }
  let row = i / (params.out_height * params.out_width) % (params.group_count * params.filters);
  out[i] = R(result(row, sum));
}
