// The slot of a workgroup's text: there is one. slots_of_rows.wgsl has the same functions for several.
const SLOTS = 1u;

fn slot_of(group: vec3<u32>) -> u32 { return 0u; }
fn is_used(group: vec3<u32>) -> bool { return true; }
