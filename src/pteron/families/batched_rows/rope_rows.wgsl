//! extent places: 2 * (count // (work * all))
//! extent cosines: (start + steps - 1) * angle_strides[0] + columns
//! extent k_out: slots * capacity * key_heads * width
//! extent v_out: slots * capacity * key_heads * width
// Rotates queries and keys as families/rope/rope.wgsl does, each row by its own angles, and copies values. A row of
// the table has the cosines of a row, then its sines. Keys and values are written to the row's place, (position,
// slot), in caches [slots, capacity, heads, width], where a padding row writes nothing; or, without places, to the same
// row of a tensor. One invocation processes one pair, or one element that is not rotated, of a head of q, k or v.
import package::wgsl::lib::index::{flat_index};
import package::wgsl::lib::rope_heads::{move_pair};
@if(places) import package::wgsl::lib::row_of::{row_of};

alias C = f32;
const WORKGROUP = 64u;

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

@group(0) @binding(3) var<storage, read> cosines: array<C>;
@group(0) @binding(4) var<storage, read> places: array<vec2<i32>>;
@group(0) @binding(8) var<uniform> params: Params;

@compute @workgroup_size(WORKGROUP)
fn main(@builtin(global_invocation_id) id: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>) {
  let i = flat_index(id, groups);
  if (i >= params.count) { return; }
  let pair = i % params.work;
  let head = i / params.work % params.all;
  let row = i / params.work / params.all;
  @if(places) if (head >= params.heads && row_of(row) < 0) { return; }
  move_pair(row, head, pair);
}

fn out_base(row: u32, head: u32) -> u32 {
  @if(places) return (u32(row_of(row)) * params.key_heads + head) * params.width;
  @else return (row * params.key_heads + head) * params.width;
}
