// The slot of a workgroup's sequence: there is one. batch_slots.wgsl has the same functions for several.
const SLOTS = 1u;

fn slot_of(group: vec3<u32>) -> u32 { return 0u; }
fn is_used(group: vec3<u32>) -> bool { return true; }
