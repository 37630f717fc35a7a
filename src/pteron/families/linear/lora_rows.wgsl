//! extent chosen: slots * WORDS
//! extent places: 2 * count
//! extent which: count
// which[i] = the adapter of the sequence that row i belongs to: that in its slot or, without places, the only one; 0 for a
// padding row. One invocation takes one row.
import package::wgsl::lib::index::{flat_index};

const WORKGROUP = 64u;
override WORDS: u32 = 64u; // per sequence

struct Params {
  count: u32, // rows
  slots: u32,
}

@group(0) @binding(0) var<storage, read> chosen: array<i32>;
@group(0) @binding(1) var<storage, read> places: array<i32>; // (position, slot)
@group(0) @binding(2) var<storage, read_write> which: array<i32>;
@group(0) @binding(3) var<uniform> params: Params;

fn slot_of(i: u32) -> i32 {
  @if(places) return places[2u * i + 1u];
  @else return 0;
}

@compute @workgroup_size(WORKGROUP)
fn main(@builtin(global_invocation_id) id: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>) {
  let i = flat_index(id, groups);
  if (i >= params.count) { return; }
  let slot = slot_of(i);
  let is_padding = slot < 0 || slot >= i32(params.slots);
  which[i] = select(chosen[u32(clamp(slot, 0, i32(params.slots) - 1)) * WORDS], 0, is_padding);
}
