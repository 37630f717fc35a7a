//! use sample
//! extent logits: base + vocabulary
//! extent seen: vocabulary
//! extent bias: vocabulary
//! extent mask: ceil(vocabulary, 32)
//! extent anew: base + vocabulary
// Logits as they are drawn from, where more than a repetition penalty changes them: tokens outside the mask are the
// lowest number, the others get their bias, then the penalties for what was there and for what was drawn.
// One invocation takes one token.
alias X = f32;
const WORKGROUP = 64u;

struct Params {
  vocabulary: u32,
  base: u32, // where the last row of logits starts
  penalty: i32, // the bits of an f32, as those below
  presence: i32,
  frequency: i32,
}

@group(0) @binding(0) var<storage, read> logits: array<X>;
@group(0) @binding(1) var<storage, read> seen: array<u32>; // SEEN_BEFORE, and how often it was drawn
@group(0) @binding(2) var<storage, read> bias: array<f32>; // LOWEST: banned
@group(0) @binding(3) var<storage, read> mask: array<u32>; // a bit for each token, the lowest first
@group(0) @binding(4) var<storage, read_write> anew: array<f32>;
@group(0) @binding(5) var<uniform> params: Params;

fn is_allowed(token: u32) -> bool { return ((mask[token / 32u] >> (token % 32u)) & 1u) != 0u; }
fn bias_of(token: u32) -> f32 { return bias[token]; }
fn times_drawn(token: u32) -> u32 { return seen[token] & 0x7fffffffu; }
fn was_seen(token: u32) -> bool { return seen[token] != 0u; }

@compute @workgroup_size(WORKGROUP)
fn main(@builtin(global_invocation_id) id: vec3<u32>) {
  let token = id.x;
  if (token >= params.vocabulary) { return; }
  let logit = f32(logits[params.base + token]);
  let added = bias_of(token);
  let times = f32(times_drawn(token));
  let value = penalised(finite(logit) + added, was_seen(token), bitcast<f32>(params.penalty));
  let amount = min(times, 1.0) * bitcast<f32>(params.presence) + times * bitcast<f32>(params.frequency);
  let is_left = is_allowed(token) && added > LOWEST && finite(logit) > LOWEST;
  anew[params.base + token] = select(LOWEST, finite(value - amount), is_left);
}
