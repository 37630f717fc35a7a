//! loops: ceil(keys, 4) + 4 * 5
//! extent scores: slots * keys
//! extent sinks: key_heads * heads_per_key
//! extent v: (max(CACHES, OWN * ceil(first + slots, pitch * key_heads)) - 1) * v_strides[0] + ((RING or context) - 1) * v_strides[1] + (key_heads - 1) * v_strides[2] + VALUE_ROW
//! extent places: 2 * ceil(first + slots, pitch * key_heads)
//! extent out: (ceil(first + slots, pitch * key_heads) - 1) * out_strides[0] + (steps - 1) * out_strides[1] + (key_heads * heads_per_key - 1) * out_strides[2] + VALUE_WIDTH
// out = softmax(scores) · v, NaN if a query sees no key. One invocation computes four elements of four queries
// that share a key head. It reads the keys once, four at a time, keeps running maxima and rescales its sums when
// they rise. Scores are written by attention_scores.wgsl.
import package::wgsl::lib::index::{flat_index};
import package::wgsl::lib::nan::{LOWEST, nan};
import super::lib::heads::{VALUE_ROW, VALUE_WIDTH};
import super::lib::contexts::{CACHES, OWN, cache_of, keys_of};
import super::lib::window::{RING, first_seen, four_cache_rows};
import super::lib::value_elements::{value_elements};
import super::lib::sinks::{with_sink};
import super::lib::softmax::{greatest, weights_of};

alias R = f32;
override WORKGROUP: u32 = 64u;
override CAUSAL: bool = true; // query s sees the context up to start + s

struct Params {
  first: u32, // first slot of this launch
  slots: u32, // in this launch, a multiple of 4
  pitch: u32, // slots per key head, a multiple of 4; those past its queries are not used
  keys: u32, // capacity of a row of scores, a multiple of 4
  steps: u32,
  key_heads: u32,
  heads_per_key: u32, // query heads that share a key head
  context: i32, // keys to attend to
  start: i32, // position of the first step
  v_strides: vec3<u32>, // of (batch, step, head), in elements
  out_strides: vec3<u32>,
}

@group(0) @binding(0) var<storage, read> scores: array<f32>;
@group(0) @binding(1) var<storage, read_write> out: array<R>;
@group(0) @binding(3) var<uniform> params: Params;

@compute @workgroup_size(WORKGROUP)
fn main(@builtin(global_invocation_id) id: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>) {
  let i = flat_index(id, groups);
  let quads = (VALUE_WIDTH + 3u) / 4u;
  let slot = 4u * (i / quads);
  if (slot >= params.slots) { return; }
  let columns = 4u * (i % quads) + vec4(0u, 1u, 2u, 3u);
  let key_head = (params.first + slot) / params.pitch % params.key_heads;
  let batch = (params.first + slot) / params.pitch / params.key_heads;
  let order = (params.first + slot) % params.pitch;
  let last = params.heads_per_key * params.steps - 1u;
  let context = keys_of(batch);
  var ends = vec2(i32(context)); // one past the last key that the first and the last query see
  if (CAUSAL) {
    let steps = vec2(order, min(order + 3u, last)) / params.heads_per_key;
    ends = min(ends, params.start + vec2<i32>(steps) + 1);
  }
  let first = first_seen(u32(ends.x)); // key of the first score
  let count = min(u32(ends.y) - first, params.keys);

  let v_base = dot(vec3(cache_of(batch), 0u, key_head), params.v_strides);
  var most = vec4(LOWEST);
  var total = vec4(0.0);
  var gathered = mat4x4<f32>(); // a column for each query
  for (var key = 0u; key < count; key += 4u) {
    let a = scores_of(slot, key);
    let b = scores_of(slot + 1u, key);
    let c = scores_of(slot + 2u, key);
    let d = scores_of(slot + 3u, key);
    let raised = max(most, vec4(greatest(a), greatest(b), greatest(c), greatest(d)));
    let shrink = exp(most - raised);
    let weights = mat4x4(
      weights_of(a, raised.x),
      weights_of(b, raised.y),
      weights_of(c, raised.z),
      weights_of(d, raised.w),
    );
    let keys = min(first + key + vec4(0u, 1u, 2u, 3u), vec4(context - 1u));
    let rows = four_cache_rows(keys) * params.v_strides.y;
    // A column for each key.
    let values = mat4x4(
      value_elements(v_base + rows.x, columns.x, VALUE_WIDTH),
      value_elements(v_base + rows.y, columns.x, VALUE_WIDTH),
      value_elements(v_base + rows.z, columns.x, VALUE_WIDTH),
      value_elements(v_base + rows.w, columns.x, VALUE_WIDTH),
    );
    let fresh = values * weights;
    gathered[0] = gathered[0] * shrink.x + fresh[0];
    gathered[1] = gathered[1] * shrink.y + fresh[1];
    gathered[2] = gathered[2] * shrink.z + fresh[2];
    gathered[3] = gathered[3] * shrink.w + fresh[3];
    total = total * shrink + vec4(1.0) * weights;
    most = raised;
  }
  for (var query = 0u; query < 4u; query++) {
    if (order + query > last) { return; }
    let step = (order + query) / params.heads_per_key;
    let head = key_head * params.heads_per_key + (order + query) % params.heads_per_key;
    let base = dot(vec3(batch, step, head), params.out_strides);
    let sum = with_sink(total[query], most[query], head);
    let mean = select(gathered[query] / sum, vec4(nan()), sum == 0.0);
    for (var e = 0u; e < 4u; e++) {
      if (columns[e] < VALUE_WIDTH) { out[base + columns[e]] = R(mean[e]); }
    }
  }
}

// The scores of a query for four keys.
fn scores_of(slot: u32, key: u32) -> vec4<f32> {
  let at = slot * params.keys + key;
  return vec4(scores[at], scores[at + 1u], scores[at + 2u], scores[at + 3u]);
}
