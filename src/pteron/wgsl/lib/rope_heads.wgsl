//! extent q: count // (work * all) * heads * width
//! extent q_out: count // (work * all) * heads * width
//! extent k: count // (work * all) * key_heads * width
//! extent v: count // (work * all) * key_heads * width
// Moves one pair, or one element that is not rotated, of a head of q, k or v: queries and keys are rotated, values copied.
// Kernels declare `out_base(row, head)`, the first element of a head of keys or values in the output.
import super::rope_pairs::{places_of, rotate};

alias Q = f32;
alias K = f32;
alias V = f32;
alias KeyOut = f32;
alias ValueOut = f32;

@group(0) @binding(0) var<storage, read> q: array<Q>;
@group(0) @binding(1) var<storage, read> k: array<K>;
@group(0) @binding(2) var<storage, read> v: array<V>;
@group(0) @binding(5) var<storage, read_write> q_out: array<Q>;
@group(0) @binding(6) var<storage, read_write> k_out: array<KeyOut>;
@group(0) @binding(7) var<storage, read_write> v_out: array<ValueOut>;

// Heads of a row are those of queries, then those of keys, then those of values.
fn move_pair(row: u32, head: u32, pair: u32) {
  @if(v) if (head >= params.heads + params.key_heads) {
    copy_value(row, head - params.heads - params.key_heads, pair);
    return;
  }
  @if(k) if (head >= params.heads) {
    rotate_key(row, head - params.heads, pair);
    return;
  }
  rotate_query(row, head, pair);
}

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
