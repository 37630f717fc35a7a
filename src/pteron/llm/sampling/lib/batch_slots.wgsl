//! extent slots: groups[1]
// single_slot.wgsl for a batch: row y of the grid belongs to the sequence in slot slots[y]; -1: the row is unused.
const SLOTS = 1u;

@group(0) @binding(20) var<storage, read> slots: array<i32>;

fn slot_of(group: vec3<u32>) -> u32 { return u32(clamp(slots[group.y], 0, i32(SLOTS) - 1)); }
fn is_used(group: vec3<u32>) -> bool { return slots[group.y] >= 0 && slots[group.y] < i32(SLOTS); }
