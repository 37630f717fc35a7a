//! use index
//! use q4_sizes
//! use q4_quads
//! extent sums: PARTS * rows * columns
//! extent out: rows * (columns - OTHERS)
// A product with 4-bit weights from the sums of its parts, as q4_merge.wgsl, four neighbouring outputs an
// invocation (lib/q4_quads.wgsl), which it may gate.
const WORKGROUP = 64u;
const IS_GATED = false; // whether the first half of the columns is a gate for the second: OTHERS

@group(0) @binding(8) var<storage, read> sums: array<vec4<f32>>;

fn total(m: u32, n: u32) -> vec4<f32> {
  let at = (m * params.columns + n) / 4u;
  var sum = vec4(0.0);
  //! unroll
  for (var part = 0u; part < PARTS; part++) { sum += sums[part * (params.rows * params.columns / 4u) + at]; }
  return sum;
}

@compute @workgroup_size(WORKGROUP)
fn main(@builtin(global_invocation_id) id: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>) {
  let i = flat_index(id, groups);
  let width = select(params.columns, OTHERS, IS_GATED);
  let m = i / (width / 4u);
  let n = i % (width / 4u) * 4u;
  if (m >= params.rows) { return; }
  if (IS_GATED) {
    store_gated(m, n, total(m, n), total(m, n + OTHERS));
  } else {
    store_quad(0u, m, n, total(m, n));
  }
}
