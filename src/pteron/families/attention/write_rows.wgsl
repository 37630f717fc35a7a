//! extent k: count
//! extent v: count
//! extent places: 2 * (count // row)
//! extent k_out: slots * capacity * row
//! extent v_out: slots * capacity * row
// Writes rows of keys and values to caches, each to its place, (position, slot), or from a position on; a padding row
// writes nothing. One invocation copies one element of both; values may be absent.
import package::wgsl::lib::index::{flat_index};
import package::wgsl::lib::row_of::{row_of};

alias K = f32;
alias V = f32;
alias KeyOut = f32;
alias ValueOut = f32;
const WORKGROUP = 64u;

struct Params {
  count: u32,
  row: u32, // elements of a row
  steps: u32, // rows of a slot that are written from `start` on, without places
  start: i32, // the position of the first of them
  slots: u32,
  capacity: u32, // rows of a slot
}

@group(0) @binding(0) var<storage, read> k: array<K>;
@group(0) @binding(1) var<storage, read> v: array<V>;
@group(0) @binding(2) var<storage, read> places: array<vec2<i32>>;
@group(0) @binding(3) var<storage, read_write> k_out: array<KeyOut>;
@group(0) @binding(4) var<storage, read_write> v_out: array<ValueOut>;
@group(0) @binding(5) var<uniform> params: Params;

@compute @workgroup_size(WORKGROUP)
fn main(@builtin(global_invocation_id) id: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>) {
  let i = flat_index(id, groups);
  if (i >= params.count) { return; }
  let to_row = row_of(i / params.row);
  if (to_row < 0) { return; }
  let to = u32(to_row) * params.row + i % params.row;
  k_out[to] = KeyOut(k[i]);
  @if(v) v_out[to] = ValueOut(v[i]);
}
