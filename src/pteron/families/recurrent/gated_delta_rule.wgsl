//! loops: steps
//! extent q: rows * steps * key_heads * KEY_WIDTH
//! extent k: rows * steps * key_heads * KEY_WIDTH
//! extent v: rows * steps * heads * width
//! extent g: rows * steps * heads
//! extent beta: rows * steps * heads
//! extent places: 2 * rows
//! extent state: slots * heads * KEY_WIDTH * width
//! extent out: rows * steps * heads * width
// For each step and head, with a state S [KEY_WIDTH, width]: S ← exp(g)·S; S ← S + k ⊗ beta·(v - k·S); out = q·S.
// Columns of S are independent: one invocation takes one column through all steps of a sequence, in registers. Rows
// are sequences; states are [slots, heads, KEY_WIDTH, width].
import package::wgsl::lib::index::{flat_index};
import super::lib::sequences::{is_new, slot_of};

alias Q = f32;
alias K = f32;
alias V = f32;
alias G = f32;
alias B = f32;
alias S = f32;
alias R = f32;
const WORKGROUP = 64u;
override KEY_WIDTH: u32 = 128u; // at most 256: an invocation keeps a column of a state

struct Params {
  rows: u32,
  steps: u32, // of a row
  heads: u32,
  key_heads: u32,
  width: u32, // of values
  start: i32, // the position of the first step
  slots: u32,
}

@group(0) @binding(0) var<storage, read> q: array<Q>;
@group(0) @binding(1) var<storage, read> k: array<K>;
@group(0) @binding(2) var<storage, read> v: array<V>;
@group(0) @binding(3) var<storage, read> g: array<G>;
@group(0) @binding(4) var<storage, read> beta: array<B>;
@group(0) @binding(5) var<storage, read> places: array<vec2<i32>>;
@group(0) @binding(6) var<storage, read_write> state: array<S>;
@group(0) @binding(7) var<storage, read_write> out: array<R>;
@group(0) @binding(8) var<uniform> params: Params;

@compute @workgroup_size(WORKGROUP)
fn main(@builtin(global_invocation_id) id: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>) {
  let i = flat_index(id, groups);
  if (i >= params.rows * params.heads * params.width) { return; }
  let column = i % params.width;
  let head = i / params.width % params.heads;
  let row = i / params.width / params.heads;
  let key_head = head / (params.heads / params.key_heads);
  let slot = slot_of(row);
  let base = (u32(max(slot, 0)) * params.heads + head) * KEY_WIDTH * params.width + column;
  var kept = array<f32, KEY_WIDTH>();
  if (!is_new(row)) {
    //! unroll
    for (var j = 0u; j < KEY_WIDTH; j++) { kept[j] = f32(state[base + j * params.width]); }
  }
  for (var t = 0u; t < params.steps; t++) {
    let step = row * params.steps + t;
    let of_head = step * params.heads + head;
    let key = (step * params.key_heads + key_head) * KEY_WIDTH;
    let decay = exp(f32(g[of_head]));
    var found = 0.0;
    //! unroll
    for (var j = 0u; j < KEY_WIDTH; j++) {
      kept[j] *= decay;
      found += kept[j] * f32(k[key + j]);
    }
    let change = f32(beta[of_head]) * (f32(v[of_head * params.width + column]) - found);
    var result = 0.0;
    //! unroll
    for (var j = 0u; j < KEY_WIDTH; j++) {
      kept[j] += f32(k[key + j]) * change;
      result += kept[j] * f32(q[key + j]);
    }
    out[of_head * params.width + column] = R(result);
  }
  if (slot < 0) { return; }
  //! unroll
  for (var j = 0u; j < KEY_WIDTH; j++) { state[base + j * params.width] = S(kept[j]); }
}
