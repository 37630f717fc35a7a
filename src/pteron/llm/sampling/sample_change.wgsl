//! extent logits: base + vocabulary * groups[1]
//! extent seen: vocabulary * SLOTS
//! extent bias: vocabulary * SLOTS
//! extent mask: mask_words * SLOTS
//! extent changed_logits: base + vocabulary * groups[1]
// Logits as they are drawn from: tokens outside the mask become the lowest number, the others get their bias, then the
// penalties for tokens of the prompt and for drawn tokens. One invocation takes one token of one row.
import package::wgsl::lib::nan::{LOWEST};
import super::lib::row::{base_of};
import super::lib::sample::{finite, penalised};
import super::lib::settings::{frequency_of, penalty_of, presence_of};
import super::lib::slot::{SLOTS, slot_of};

alias X = f32;
const WORKGROUP = 64u;

struct Params {
  vocabulary: u32,
  base: u32, // start of the last row of logits
  mask_words: u32, // per slot
  penalty: i32, // the bits of an f32, as those below
  presence: i32,
  frequency: i32,
}

@group(0) @binding(0) var<storage, read> logits: array<X>;
@group(0) @binding(1) var<storage, read> seen: array<u32>; // SEEN_BEFORE, plus how often the token was drawn
@group(0) @binding(2) var<storage, read> bias: array<f32>; // LOWEST: banned
@group(0) @binding(3) var<storage, read> mask: array<u32>; // a bit for each token, the lowest first
@group(0) @binding(4) var<storage, read_write> changed_logits: array<f32>;
@group(0) @binding(5) var<uniform> params: Params;

fn word_of(slot: u32, token: u32) -> u32 {
  @if(mask) return mask[slot * params.mask_words + token / 32u];
  @else return 0xffffffffu;
}

fn bias_of(slot: u32, token: u32) -> f32 {
  @if(bias) return bias[slot * params.vocabulary + token];
  @else return 0.0;
}

fn seen_of(slot: u32, token: u32) -> u32 {
  @if(seen) return seen[slot * params.vocabulary + token];
  @else return 0u;
}

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
  let value = penalised(logit + added, before != 0u, penalty_of(group));
  let amount = min(times, 1.0) * presence_of(group) + times * frequency_of(group);
  let is_allowed = ((word_of(slot, token) >> (token % 32u)) & 1u) != 0u;
  let is_left = is_allowed && added > LOWEST && logit > LOWEST;
  changed_logits[place] = select(LOWEST, finite(value - amount), is_left);
}
