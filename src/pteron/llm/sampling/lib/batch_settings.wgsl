//! use batch_slots
//! extent settings: SLOTS * SETTINGS
// batch_slots.wgsl, and the sampling settings of every slot, as batch_sampler.py writes them.
const SETTINGS = 12u; // words per slot
const SEED = 0u;
const TEMPERATURE = 1u;
const TOP_K = 2u;
const TOP_P = 3u;
const LOG_MIN_P = 4u;
const PENALTY = 5u;
const PRESENCE = 6u;
const FREQUENCY = 7u;
const TOPS = 8u;
const FIRST = 9u; // position of the token whose logits give the first draw
const DRAWS = 10u; // whether tokens are drawn at random

@group(0) @binding(21) var<storage, read> settings: array<i32>;

fn setting(group: vec3<u32>, index: u32) -> i32 { return settings[slot_of(group) * SETTINGS + index]; }
fn fraction(group: vec3<u32>, index: u32) -> f32 { return bitcast<f32>(setting(group, index)); }
fn is_drawing(group: vec3<u32>) -> bool { return is_used(group) && setting(group, DRAWS) != 0; }
