//! use index
//! extent q: count // (work * all) * heads * width
//! extent q_out: count // (work * all) * heads * width
//! extent k: count // (work * all) * key_heads * width
//! extent v: count // (work * all) * key_heads * width
//! extent places: 2 * (count // (work * all))
//! extent angles: count // (work * all) * 2 * columns
//! extent k_out: slots * capacity * key_heads * width
//! extent v_out: slots * capacity * key_heads * width
// Turns queries and keys as families/rope/rope.wgsl does, each row by angles of its own, and brings values along.
// Keys and values are written to the row's place, (position, slot), of caches [slots, capacity, heads, width];
// those of a row that has none are written nowhere. One invocation moves one pair, or one of the rest, of a head of
// q, of k or of v.
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
  heads: u32,
  key_heads: u32,
  width: u32,
  rotary: u32,
  columns: u32, // of cosines, then as many of sines
  slots: u32,
  capacity: u32, // rows of a slot
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
  if (head >= params.heads + params.key_heads) {
    copy_value(row, head - params.heads - params.key_heads, pair);
  } else if (head >= params.heads) {
    turn_key(row, head - params.heads, pair);
  } else {
    turn_query(row, head, pair);
  }
}

// Where a row of keys and values is written, among all rows of the caches; none where that is negative.
fn row_of(row: u32) -> i32 {
  let place = places[row];
  let is_there = all(place >= vec2(0)) && all(place < vec2(i32(params.capacity), i32(params.slots)));
  return select(-1, place.y * i32(params.capacity) + place.x, is_there);
}

fn turn_query(row: u32, head: u32, pair: u32) {
  let at = (row * params.heads + head) * params.width + places_of(pair);
  let turned = turn(vec2(f32(q[at.x]), f32(q[at.y])), row, pair);
  q_out[at.x] = Q(turned.x);
  q_out[at.y] = Q(turned.y);
}

fn turn_key(row: u32, head: u32, pair: u32) {
  let to_row = row_of(row);
  if (to_row < 0) { return; }
  let at = (row * params.key_heads + head) * params.width + places_of(pair);
  let to = (u32(to_row) * params.key_heads + head) * params.width + places_of(pair);
  let turned = turn(vec2(f32(k[at.x]), f32(k[at.y])), row, pair);
  k_out[to.x] = KeyOut(turned.x);
  k_out[to.y] = KeyOut(turned.y);
}

fn copy_value(row: u32, head: u32, pair: u32) {
  let to_row = row_of(row);
  if (to_row < 0) { return; }
  let at = (row * params.key_heads + head) * params.width + places_of(pair);
  let to = (u32(to_row) * params.key_heads + head) * params.width + places_of(pair);
  v_out[to.x] = ValueOut(v[at.x]);
  v_out[to.y] = ValueOut(v[at.y]);
}

// The elements of a head that an invocation moves: a pair, or twice the same one of the rest.
fn places_of(pair: u32) -> vec2<u32> {
  let pairs = params.rotary / 2u;
  if (pair >= pairs) { return vec2(pair + pairs); }
  return select(vec2(2u * pair, 2u * pair + 1u), vec2(pair, pair + pairs), HALVED);
}

// Cosine and sine of a pair, for its first and for its second element, in the angles from `base` on.
fn first_angle(base: u32, pair: u32) -> vec2<f32> {
  return vec2(f32(angles[base + pair]), f32(angles[base + params.columns + pair]));
}
fn second_angle(base: u32, pair: u32) -> vec2<f32> { return first_angle(base, pair); }

// Rounded as in families/rope/lib/turning.wgsl, so that no last bit depends on who turns.
fn turn(x: vec2<f32>, row: u32, pair: u32) -> vec2<f32> {
  if (pair >= params.rotary / 2u) { return x; }
  let base = row * 2u * params.columns;
  let a = first_angle(base, pair);
  let b = second_angle(base, pair);
  return vec2(fma(x.x, a.x, -(x.y * a.y)), fma(x.y, b.x, x.x * b.y));
}
