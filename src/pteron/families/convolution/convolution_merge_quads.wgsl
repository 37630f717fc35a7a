//! use index
//! use convolution
//! loops: parts
//! extent out: batch * group_count * filters * out_height * out_width
//! extent sums: parts * batch * group_count * filters * out_height * out_width
// As convolution_merge.wgsl, four adjacent pixels per invocation, for planes of out that are multiples of four.
const WORKGROUP = 64u;

@group(0) @binding(5) var<storage, read> sums: array<vec4<f32>>;

@compute @workgroup_size(WORKGROUP)
fn main(@builtin(global_invocation_id) id: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>) {
  let i = flat_index(id, groups);
  let rows = params.group_count * params.filters;
  let plane_quads = params.out_height * params.out_width / 4u;
  let count = params.batch * rows * plane_quads;
  if (i >= count) { return; }
  var sum = vec4(0.0);
  for (var part = 0u; part < params.parts; part++) { sum += sums[part * count + i]; }
  let plane = i / plane_quads;
  var results: vec4<f32>;
  //! unroll
  for (var p = 0u; p < 4u; p++) {
    let at = i % plane_quads * 4u + p;
    let pixel = Pixel(plane / rows, at / params.out_width, at % params.out_width);
    results[p] = result(pixel, plane % rows, sum[p]);
  }
  put_quad(i, results);
}
