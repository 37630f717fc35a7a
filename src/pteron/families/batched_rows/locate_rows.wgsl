//! extent slots: count
//! extent tokens: slot_count
//! extent positions: slot_count
//! extent ids: count
//! extent places: 2 * count
// The token and the (position, slot) of each row, from lists by slot. One invocation takes one row; a padding row
// gets the token 0 and (-1, -1).
import package::wgsl::lib::index::{flat_index};

const WORKGROUP = 64u;

struct Params {
  count: u32, // rows
  slot_count: u32,
}

@group(0) @binding(0) var<storage, read> slots: array<i32>;
@group(0) @binding(1) var<storage, read> tokens: array<i32>;
@group(0) @binding(2) var<storage, read> positions: array<i32>;
@group(0) @binding(3) var<storage, read_write> ids: array<i32>;
@group(0) @binding(4) var<storage, read_write> places: array<vec2<i32>>;
@group(0) @binding(5) var<uniform> params: Params;

@compute @workgroup_size(WORKGROUP)
fn main(@builtin(global_invocation_id) id: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>) {
  let i = flat_index(id, groups);
  if (i >= params.count) { return; }
  let slot = slots[i];
  if (slot < 0 || slot >= i32(params.slot_count)) {
    ids[i] = 0;
    places[i] = vec2(-1, -1);
  } else {
    ids[i] = tokens[slot];
    places[i] = vec2(positions[slot], slot);
  }
}
