//! use index
//! use matmul
//! extent sums: PARTS * batch * rows * columns
// A matrix product (lib/matmul.wgsl) from the sums of its PARTS, laid out as [part][z][m][n]. One invocation finishes
// a quad of columns, whose number is a multiple of four.
const WORKGROUP = 64u;
const PARTS = 2u;

@group(0) @binding(5) var<storage, read> sums: array<vec4<f32>>;

@compute @workgroup_size(WORKGROUP)
fn main(@builtin(global_invocation_id) id: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>) {
  let i = flat_index(id, groups);
  let quads = params.columns / 4u;
  let count = params.batch * params.rows * quads;
  if (i >= count) { return; }
  var total = vec4(0.0);
  //! unroll
  for (var part = 0u; part < PARTS; part++) { total += sums[part * count + i]; }
  store_quad(i / quads / params.rows, i / quads % params.rows, i % quads * 4u, total);
}
