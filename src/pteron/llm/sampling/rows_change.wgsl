//! use sample
//! use texts_of_rows
//! use settings_of_rows
//! extent logits: vocabulary * groups[1]
//! extent seen: vocabulary * SLOTS
//! extent bias: vocabulary * SLOTS
//! extent mask: mask_words * SLOTS
//! extent anew: vocabulary * groups[1]
// As sample_change.wgsl, for several texts with settings of their own: what a text does without changes nothing.
// One invocation takes one token of one row.
alias X = f32;
const WORKGROUP = 64u;

struct Params {
  vocabulary: u32,
  base: u32, // as in the kernels beside it, which this one does not look at
  mask_words: u32, // of a slot
}

@group(0) @binding(0) var<storage, read> logits: array<X>;
@group(0) @binding(1) var<storage, read> seen: array<u32>; // SEEN_BEFORE, and how often it was drawn
@group(0) @binding(2) var<storage, read> bias: array<f32>; // LOWEST: banned
@group(0) @binding(3) var<storage, read> mask: array<u32>; // a bit for each token, the lowest first
@group(0) @binding(4) var<storage, read_write> anew: array<f32>;
@group(0) @binding(5) var<uniform> params: Params;

fn word_of(slot: u32, token: u32) -> u32 { return mask[slot * params.mask_words + token / 32u]; }
fn bias_of(slot: u32, token: u32) -> f32 { return bias[slot * params.vocabulary + token]; }
fn seen_of(slot: u32, token: u32) -> u32 { return seen[slot * params.vocabulary + token]; }

@compute @workgroup_size(WORKGROUP)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) local: u32) {
  let token = group.x * WORKGROUP + local;
  if (token >= params.vocabulary) { return; }
  let slot = slot_of(group);
  let place = base_of(group) + token;
  let logit = finite(f32(logits[place]));
  let added = bias_of(slot, token);
  let before = seen_of(slot, token);
  let times = f32(before & 0x7fffffffu);
  let value = penalised(logit + added, before != 0u, fraction(group, PENALTY));
  let amount = min(times, 1.0) * fraction(group, PRESENCE) + times * fraction(group, FREQUENCY);
  let is_allowed = ((word_of(slot, token) >> (token % 32u)) & 1u) != 0u;
  let is_left = is_allowed && added > LOWEST && logit > LOWEST;
  anew[place] = select(LOWEST, finite(value - amount), is_left);
}
