//! extent q: (ceil(first + slots, pitch * key_heads) - 1) * q_strides[0] + (steps - 1) * q_strides[1] + (key_heads * heads_per_key - 1) * q_strides[2] + WIDTH
//! extent k: (max(CACHES, OWN * ceil(first + slots, pitch * key_heads)) - 1) * k_strides[0] + ((RING or context) - 1) * k_strides[1] + (key_heads - 1) * k_strides[2] + KEY_ROW
//! extent places: 2 * ceil(first + slots, pitch * key_heads)
//! extent mask: (ceil(first + slots, pitch * key_heads) - 1) * mask_strides[0] + (key_heads * heads_per_key - 1) * mask_strides[1] + (steps - 1) * mask_strides[2] + (context - 1) * mask_strides[3] + 1
//! extent slopes: key_heads * heads_per_key
//! extent scores: slots * keys
// scores = scale · q·kᵀ + bias, -∞ where a query does not see a key. One invocation computes the scores of four
// queries that share a key head, for four keys, so that every loaded value is used four times: loads are slow on
// software adapters. attention_values.wgsl reads the scores.
//
// Tensors are addressed by the strides of (batch, step, head); a head's elements are contiguous. Scores are
// [slots, keys], one query per slot, from the first key on that the first of the four queries sees. Keys that none
// of them sees are not written.
import package::wgsl::lib::index::{flat_index};
import package::wgsl::lib::nan::{minus_infinity};
import super::lib::heads::{KEY_ROW, WIDTH};
import super::lib::contexts::{CACHES, OWN, cache_of, keys_of};
import super::lib::window::{RING, first_seen, four_cache_rows};
import super::lib::key_products::{products};
import super::lib::softcap::{four_capped};
import super::lib::bias::{M, biases};

alias Q = f32;
override WORKGROUP: u32 = 64u;
override CAUSAL: bool = true; // query s sees the context up to start + s

struct Params {
  first: u32, // first slot of this launch
  slots: u32, // in this launch, a multiple of 4
  pitch: u32, // slots per key head, a multiple of 4; those past its queries repeat the last
  keys: u32, // capacity of a row of scores, a multiple of 4
  steps: u32,
  key_heads: u32,
  heads_per_key: u32, // query heads that share a key head
  context: i32, // keys to attend to
  start: i32, // position of the first step
  scale: f32,
  q_strides: vec3<u32>,
  k_strides: vec3<u32>,
  mask_strides: vec4<u32>, // of (batch, head, step, key)
}

@group(0) @binding(0) var<storage, read> q: array<Q>;
@group(0) @binding(2) var<storage, read> mask: array<M>;
@group(0) @binding(2) var<storage, read> slopes: array<M>;
@group(0) @binding(3) var<storage, read_write> scores: array<f32>;
@group(0) @binding(4) var<uniform> params: Params;

@compute @workgroup_size(WORKGROUP)
fn main(@builtin(global_invocation_id) id: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>) {
  let i = flat_index(id, groups);
  let column = 4u * (i % (params.keys / 4u));
  let slot = 4u * (i / (params.keys / 4u));
  if (slot >= params.slots) { return; }
  let key_head = (params.first + slot) / params.pitch % params.key_heads;
  let batch = (params.first + slot) / params.pitch / params.key_heads;
  let context = keys_of(batch);
  if (column >= context) { return; }
  let last = params.heads_per_key * params.steps - 1u;
  let order = min((params.first + slot) % params.pitch + vec4(0u, 1u, 2u, 3u), vec4(last));
  let steps = order / params.heads_per_key;
  let heads = key_head * params.heads_per_key + order % params.heads_per_key;
  var seen = vec4(i32(context)); // one past the last key that each query sees
  if (CAUSAL) { seen = min(seen, params.start + vec4<i32>(steps) + 1); }
  let key = first_seen(u32(seen.x)) + column; // the first query sees the oldest keys
  if (key >= u32(seen.w)) { return; } // and the last query the newest

  let q_base = batch * params.q_strides.x + steps * params.q_strides.y + heads * params.q_strides.z;
  let keys = min(key + vec4(0u, 1u, 2u, 3u), vec4(context - 1u));
  let k_base = dot(vec3(cache_of(batch), 0u, key_head), params.k_strides) + four_cache_rows(keys) * params.k_strides.y;
  let sums = products(q_base, k_base);
  let a = four_capped(sums[0] * params.scale) + biases(vec3(batch, heads.x, steps.x), keys);
  store_score(slot, column, key, seen.x, a);
  let b = four_capped(sums[1] * params.scale) + biases(vec3(batch, heads.y, steps.y), keys);
  store_score(slot + 1u, column, key, seen.y, b);
  let c = four_capped(sums[2] * params.scale) + biases(vec3(batch, heads.z, steps.z), keys);
  store_score(slot + 2u, column, key, seen.z, c);
  let d = four_capped(sums[3] * params.scale) + biases(vec3(batch, heads.w, steps.w), keys);
  store_score(slot + 3u, column, key, seen.w, d);
}

// Write the scores of four keys.
fn store_score(slot: u32, column: u32, key: u32, seen: i32, found: vec4<f32>) {
  let keys = i32(key) + vec4(0, 1, 2, 3);
  let is_seen = (keys < vec4(seen)) & (keys >= vec4(i32(first_seen(u32(seen)))));
  let shown = select(vec4(minus_infinity()), found, is_seen);
  let at = slot * params.keys + column;
  scores[at] = shown.x;
  scores[at + 1u] = shown.y;
  scores[at + 2u] = shown.z;
  scores[at + 3u] = shown.w;
}
