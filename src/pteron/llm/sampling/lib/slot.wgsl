//! extent slots: groups[1]
// The slot of a workgroup's sequence: the only one, or in a batch slots[y] for row y of the grid; -1: the row is unused.
override SLOTS: u32 = 1u;

@group(0) @binding(20) var<storage, read> slots: array<i32>;

fn slot_of(group: vec3<u32>) -> u32 {
  @if(slots) return u32(clamp(slots[group.y], 0, i32(SLOTS) - 1));
  @else return 0u;
}

fn is_used(group: vec3<u32>) -> bool {
  @if(slots) return slots[group.y] >= 0 && slots[group.y] < i32(SLOTS);
  @else return true;
}
