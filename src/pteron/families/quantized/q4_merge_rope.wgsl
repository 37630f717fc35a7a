// Adds up the parts of queries, keys and values, rotates queries and keys, and writes keys and values to their caches
// (lib/q4_quads_rope.wgsl). An invocation finishes two quads of columns: adjacent ones or, if pairs are
// (j, j + ROTARY / 2), one from each half of a head's first ROTARY elements.
import package::wgsl::lib::index::{flat_index};
import super::lib::q4_params::{params};
import super::lib::q4_result::{put};
@if(q_out) import super::lib::q4_quads_rope::{pair_angles, rotate};
@if(q_out) import super::lib::q4_angles::{HEAD_WIDTH, ROTARY, angle_base, is_rotated};
import super::lib::q4_parts::{sum_parts};

const WORKGROUP = 64u;

// The first columns of both quads. Pairs of quads are numbered over all heads; in a head, rotated quads come first,
// then the rest.
fn columns_of(quad_pair: u32) -> vec2<u32> {
  let pair_in_head = quad_pair % (HEAD_WIDTH / 8u);
  let is_halved = HALVED && pair_in_head < ROTARY / 8u;
  let quads = select(vec2(2u * pair_in_head, 2u * pair_in_head + 1u), vec2(pair_in_head, pair_in_head + ROTARY / 8u), is_halved);
  return quad_pair / (HEAD_WIDTH / 8u) * HEAD_WIDTH + 4u * quads;
}

@compute @workgroup_size(WORKGROUP)
fn main(@builtin(global_invocation_id) id: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>) {
  let i = flat_index(id, groups);
  let m = i / (params.columns / 8u);
  if (m >= params.rows) { return; }
  let n = columns_of(i % (params.columns / 8u));
  var angles: array<vec4<f32>, 4>; // loaded before the sums
  if (is_rotated(n.x)) {
    let base = angle_base(m, n.x);
    let pair = n.x % HEAD_WIDTH / select(2u, 1u, HALVED);
    //! unroll
    for (var e = 0u; e < 4u; e++) { angles[e] = pair_angles(base, pair + e); }
  }
  let first = sum_parts(m, n.x);
  let second = sum_parts(m, n.y);
  var left = select(vec4(first.xz, second.xz), first, HALVED); // first elements of the pairs
  var right = select(vec4(first.yw, second.yw), second, HALVED);
  if (is_rotated(n.x)) {
    //! unroll
    for (var e = 0u; e < 4u; e++) {
      let pair = rotate(vec2(left[e], right[e]), angles[e]);
      left[e] = pair.x;
      right[e] = pair.y;
    }
  }
  put(m, n.x, select(vec4(left.x, right.x, left.y, right.y), left, HALVED));
  put(m, n.y, select(vec4(left.z, right.z, left.w, right.w), right, HALVED));
}
