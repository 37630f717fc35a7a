//! use index
//! use q4_sizes_turned
//! use q4_quads_turned
//! use q4_parts
// Queries, keys and values from the sums of their parts, turned by their position, keys and values into their
// caches: lib/q4_quads_turned.wgsl. An invocation finishes two quads of columns, neighbours or, where the halves
// of a head's first ROTARY elements turn one another, one of each half.
const WORKGROUP = 64u;

// Where the two quads begin, counted by pairs of them over all heads: those that are turned, then the rest of a
// head.
fn columns_of(pair: u32) -> vec2<u32> {
  let own = pair % (HEAD_WIDTH / 8u);
  let is_apart = HALVED && own < ROTARY / 8u;
  let quads = select(vec2(2u * own, 2u * own + 1u), vec2(own, own + ROTARY / 8u), is_apart);
  return pair / (HEAD_WIDTH / 8u) * HEAD_WIDTH + 4u * quads;
}

@compute @workgroup_size(WORKGROUP)
fn main(@builtin(global_invocation_id) id: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>) {
  let i = flat_index(id, groups);
  let pairs = params.columns / 8u;
  let m = i / pairs;
  if (m >= params.rows) { return; }
  let n = columns_of(i % pairs);
  let by_first = angles_of(m, n.x);
  let by_second = angles_of(m, n.y);
  let first = merged(m, n.x);
  let second = merged(m, n.y);
  put_quad(0u, m, n.x, turned(by_first, first, select(first.yxwz, second, HALVED)));
  put_quad(0u, m, n.y, turned(by_second, second, select(second.yxwz, first, HALVED)));
}
