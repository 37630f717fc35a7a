//! use index
//! use nibbles
//! use q4
// A product with 4-bit weights (lib/q4.wgsl). One invocation computes TILE rows of one column, without
// barriers: what software adapters want.
const WORKGROUP = 64u;
const TILE = 4u;

@compute @workgroup_size(WORKGROUP)
fn main(@builtin(global_invocation_id) id: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>) {
  let i = flat_index(id, groups);
  let n = i % params.columns;
  let first = i / params.columns * TILE;
  if (first >= params.rows) { return; }
  let last = min(TILE, params.rows - first) - 1u;
  var sums = array<f32, TILE>();
  for (var group = 0u; group < GROUPS; group++) {
    let scale = scales[n * GROUPS + group];
    for (var word = group * GROUP; word < min((group + 1u) * GROUP, WORDS); word++) {
      let packed = weights[n * PITCH + word];
      let low = unpack_nibbles(packed, 0u) * scale;
      let high = unpack_nibbles(packed, 4u) * scale;
      for (var t = 0u; t < TILE; t++) {
        let m = first + min(t, last);
        sums[t] += dot(load(m, 2u * word), low) + dot(load(m, 2u * word + 1u), high);
      }
    }
  }
  for (var t = 0u; t <= last; t++) { store(first + t, n, sums[t]); }
}
