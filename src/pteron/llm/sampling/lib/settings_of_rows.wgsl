//! use slots_of_rows
//! extent settings: SLOTS * SETTINGS
// slots_of_rows.wgsl, and the numbers that the text of each slot is drawn by, as rows.py writes them.
const SETTINGS = 12u; // words of a slot
const SEED = 0u;
const TEMPERATURE = 1u;
const TOP_K = 2u;
const TOP_P = 3u;
const LOG_MIN_P = 4u;
const PENALTY = 5u;
const PRESENCE = 6u;
const FREQUENCY = 7u;
const TOPS = 8u;
const FIRST = 9u; // the position of the token whose logits make the first draw
const DRAWS = 10u; // whether it draws by chance

@group(0) @binding(21) var<storage, read> settings: array<i32>;

fn setting(group: vec3<u32>, index: u32) -> i32 { return settings[slot_of(group) * SETTINGS + index]; }
fn fraction(group: vec3<u32>, index: u32) -> f32 { return bitcast<f32>(setting(group, index)); }
fn is_drawing(group: vec3<u32>) -> bool { return is_used(group) && setting(group, DRAWS) != 0; }
