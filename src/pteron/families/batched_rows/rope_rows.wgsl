//! use index
//! use rope_heads
//! use row_of
//! extent q: count // (work * all) * heads * width
//! extent q_out: count // (work * all) * heads * width
//! extent k: count // (work * all) * key_heads * width
//! extent v: count // (work * all) * key_heads * width
//! extent places: 2 * (count // (work * all))
//! extent angles: (start + steps - 1) * angle_strides[0] + columns
//! extent k_out: slots * capacity * key_heads * width
//! extent v_out: slots * capacity * key_heads * width
// Rotates queries and keys as families/rope/rope.wgsl does, each row by its own angles, and copies values. A row of
// the table has the cosines, then the sines of a row. Keys and values are written to the row's place, (position,
// slot), in caches [slots, capacity, heads, width]; a padding row writes nothing. One invocation processes one pair,
// or one element that is not rotated, of a head of q, k or v.
alias Q = f32;
alias K = f32;
alias V = f32;
alias KeyOut = f32;
alias ValueOut = f32;
alias C = f32;
const WORKGROUP = 64u;
const HALVED = false; // pairs are (j, j + rotary/2) where true, (2j, 2j + 1) where not

struct Params {
  count: u32,
  work: u32, // pairs, and elements that are copied, of a head
  all: u32, // heads of a row: of q, of k, of v
  steps: u32, // as many as rows
  heads: u32,
  key_heads: u32,
  width: u32,
  rotary: u32,
  columns: u32, // of the table: cosines, and as many sines
  start: i32, // the table's row of the first step
  slots: u32,
  capacity: u32, // rows of a slot
  angle_strides: vec2<u32>, // of (row, head), in elements of the table
}

@group(0) @binding(0) var<storage, read> q: array<Q>;
@group(0) @binding(1) var<storage, read> k: array<K>;
@group(0) @binding(2) var<storage, read> v: array<V>;
@group(0) @binding(3) var<storage, read> angles: array<C>;
@group(0) @binding(4) var<storage, read> places: array<vec2<i32>>;
@group(0) @binding(5) var<storage, read_write> q_out: array<Q>;
@group(0) @binding(6) var<storage, read_write> k_out: array<KeyOut>;
@group(0) @binding(7) var<storage, read_write> v_out: array<ValueOut>;
@group(0) @binding(8) var<uniform> params: Params;

@compute @workgroup_size(WORKGROUP)
fn main(@builtin(global_invocation_id) id: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>) {
  let i = flat_index(id, groups);
  if (i >= params.count) { return; }
  let pair = i % params.work;
  let head = i / params.work % params.all;
  let row = i / params.work / params.all;
  if (head >= params.heads && row_of(row) < 0) { return; }
  if (head >= params.heads + params.key_heads) {
    copy_value(row, head - params.heads - params.key_heads, pair);
  } else if (head >= params.heads) {
    rotate_key(row, head - params.heads, pair);
  } else {
    rotate_query(row, head, pair);
  }
}

fn out_base(row: u32, head: u32) -> u32 {
  return (u32(row_of(row)) * params.key_heads + head) * params.width;
}

// Cosine and sine of a pair, for its first and for its second element, in the table from `base` on.
fn first_angle(base: u32, pair: u32) -> vec2<f32> {
  return vec2(f32(angles[base + pair]), f32(angles[base + params.columns / 2u + pair]));
}
fn second_angle(base: u32, pair: u32) -> vec2<f32> { return first_angle(base, pair); }
