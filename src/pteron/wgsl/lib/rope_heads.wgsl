import super::rope_pairs::{places_of, rotate};
// Processes one pair, or one element that is not rotated, of a head: queries and keys are rotated, values copied.
// Kernels declare `out_base(row, head)`: the first element of a head of keys or values in the output.

fn rotate_query(row: u32, head: u32, pair: u32) {
  let at = (row * params.heads + head) * params.width + places_of(pair);
  let rotated = rotate(vec2(f32(q[at.x]), f32(q[at.y])), row, head, pair);
  q_out[at.x] = Q(rotated.x);
  q_out[at.y] = Q(rotated.y);
}

fn rotate_key(row: u32, head: u32, pair: u32) {
  let at = (row * params.key_heads + head) * params.width + places_of(pair);
  let to = out_base(row, head) + places_of(pair);
  let rotated = rotate(vec2(f32(k[at.x]), f32(k[at.y])), row, head, pair);
  k_out[to.x] = KeyOut(rotated.x);
  k_out[to.y] = KeyOut(rotated.y);
}

fn copy_value(row: u32, head: u32, pair: u32) {
  let at = (row * params.key_heads + head) * params.width + places_of(pair);
  let to = out_base(row, head) + places_of(pair);
  v_out[to.x] = ValueOut(v[at.x]);
  v_out[to.y] = ValueOut(v[at.y]);
}
