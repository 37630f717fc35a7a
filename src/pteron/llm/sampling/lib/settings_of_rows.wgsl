//! use slots_of_rows
//! extent settings: SLOTS * SETTINGS
// slots_of_rows.wgsl, and the numbers that the text of each slot is drawn by, as rows.py writes them.
const SETTINGS = 12u; // words of a slot

@group(0) @binding(21) var<storage, read> settings: array<i32>;

fn setting(group: vec3<u32>, index: u32) -> i32 { return settings[slot_of(group) * SETTINGS + index]; }
fn is_drawing(group: vec3<u32>) -> bool { return is_used(group) && setting(group, 10u) != 0; }
