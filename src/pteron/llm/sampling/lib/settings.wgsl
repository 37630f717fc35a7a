//! extent settings: SLOTS * SETTINGS
// The numbers of a draw: parameters of the launch, or in a batch the settings of each slot, as batch_sampler.py writes
// them. A fraction is in the bits of an i32.
import super::slot::{SLOTS, is_used, slot_of};

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
override COUNTS: bool = false; // a filter is top-k, else top-p

@group(0) @binding(21) var<storage, read> settings: array<i32>;

fn setting(group: vec3<u32>, index: u32) -> i32 { return settings[slot_of(group) * SETTINGS + index]; }
fn fraction(group: vec3<u32>, index: u32) -> f32 { return bitcast<f32>(setting(group, index)); }
fn is_drawing(group: vec3<u32>) -> bool { return is_used(group) && setting(group, DRAWS) != 0; }

fn seed_of(group: vec3<u32>) -> u32 {
  @if(settings) return u32(setting(group, SEED));
  @else return u32(params.seed);
}
fn temperature_of(group: vec3<u32>) -> f32 {
  @if(settings) return fraction(group, TEMPERATURE);
  @else return bitcast<f32>(params.temperature);
}
fn top_k_of(group: vec3<u32>) -> i32 {
  @if(settings) return setting(group, TOP_K);
  @else return params.top_k;
}
fn top_p_of(group: vec3<u32>) -> f32 {
  @if(settings) return fraction(group, TOP_P);
  @else return bitcast<f32>(params.top_p);
}
fn log_min_p_of(group: vec3<u32>) -> f32 {
  @if(settings) return fraction(group, LOG_MIN_P);
  @else return bitcast<f32>(params.log_min_p);
}
fn penalty_of(group: vec3<u32>) -> f32 {
  @if(settings) return fraction(group, PENALTY);
  @else return bitcast<f32>(params.penalty);
}
fn presence_of(group: vec3<u32>) -> f32 {
  @if(settings) return fraction(group, PRESENCE);
  @else return bitcast<f32>(params.presence);
}
fn frequency_of(group: vec3<u32>) -> f32 {
  @if(settings) return fraction(group, FREQUENCY);
  @else return bitcast<f32>(params.frequency);
}

// Whether the token of this row is picked already: it is unused or takes the likeliest token.
fn is_picked(group: vec3<u32>) -> bool {
  @if(settings) return !is_drawing(group);
  @else return false;
}

// Whether this row is not filtered.
fn is_unfiltered(group: vec3<u32>) -> bool {
  @if(settings && COUNTS) return !is_drawing(group) || setting(group, TOP_K) <= 0;
  @elif(settings) return !is_drawing(group) || fraction(group, TOP_P) >= 1.0;
  @else return false;
}
