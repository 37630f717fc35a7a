//! loops: ceil(WIDTH, 4 * LANES) + WIDTH // 4 + ceil(VALUE_WIDTH, LANES) * (LANES + 1) + 2 * LANES
//! extent q: (ceil(first + groups[1], steps * heads) - 1) * q_strides[0] + (steps - 1) * q_strides[1] + (heads - 1) * q_strides[2] + WIDTH
//! extent k: (max(CACHES, OWN * ceil(first + groups[1], steps * heads)) - 1) * k_strides[0] + ((RING or context) - 1) * k_strides[1] + (heads - 1) // heads_per_key * k_strides[2] + KEY_ROW
//! extent v: (max(CACHES, OWN * ceil(first + groups[1], steps * heads)) - 1) * v_strides[0] + ((RING or context) - 1) * v_strides[1] + (heads - 1) // heads_per_key * v_strides[2] + VALUE_ROW
//! extent places: 2 * ceil(first + groups[1], steps * heads)
//! extent mask: (ceil(first + groups[1], steps * heads) - 1) * mask_strides[0] + (heads - 1) * mask_strides[1] + (steps - 1) * mask_strides[2] + (context - 1) * mask_strides[3] + 1
//! extent slopes: heads
//! extent parts: ((groups[1] - 1) * splits + groups[0]) * (VALUE_WIDTH + 4)
// softmax(scale · q·kᵀ + bias) · v over a split of LANES keys. One workgroup computes one query of one head over
// one split: each lane scores one key, then adds up every LANES-th element of the weighted values. For each
// (query, split) it writes the partial results that attention_merge.wgsl merges.
import package::wgsl::lib::nan::{LOWEST};
import package::wgsl::lib::rows::{LANES, WORKGROUP, row_max, row_sum};
import super::lib::heads::{KEY_ROW, VALUE_ROW, VALUE_WIDTH, WIDTH};
import super::lib::contexts::{CACHES, OWN, cache_of, keys_of};
import super::lib::window::{RING, WINDOW, cache_row, first_seen};
import super::lib::keys::{KEY_UNIT, key_quad};
import super::lib::value_elements::{value_element};
import super::lib::softcap::{capped};
import super::lib::bias::{M, bias};
import super::lib::softmax::{is_masked};

alias Q = f32;
override CAUSAL: bool = true; // query s sees the context up to start + s

struct Params {
  first: u32, // first query of this launch, counted over batch, heads and steps
  splits: u32, // per query; splits past the context are not written unless there is a window
  steps: u32,
  heads: u32,
  heads_per_key: u32, // query heads that share a key head
  context: i32, // keys to attend to
  start: i32, // position of the first query
  scale: f32,
  q_strides: vec3<u32>, // of (batch, step, head), in elements
  k_strides: vec3<u32>,
  v_strides: vec3<u32>,
  mask_strides: vec4<u32>, // of (batch, head, step, key)
}

@group(0) @binding(0) var<storage, read> q: array<Q>;
@group(0) @binding(3) var<storage, read> mask: array<M>;
@group(0) @binding(3) var<storage, read> slopes: array<M>;
@group(0) @binding(4) var<storage, read_write> parts: array<f32>;
@group(0) @binding(5) var<uniform> params: Params;

var<workgroup> query: array<vec4<f32>, WIDTH / 4u>;
var<workgroup> weights: array<f32, LANES>;

@compute @workgroup_size(WORKGROUP)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
  let split = group.x;
  let i = params.first + group.y;
  let step = i % params.steps;
  let head = i / params.steps % params.heads;
  let batch = i / params.steps / params.heads;
  let context = keys_of(batch);
  if (WINDOW == 0u && split * LANES >= context) { return; }
  let q_base = dot(vec3(batch, step, head), params.q_strides);
  let k_base = dot(vec3(cache_of(batch), 0u, head / params.heads_per_key), params.k_strides);
  let v_base = dot(vec3(cache_of(batch), 0u, head / params.heads_per_key), params.v_strides);
  var seen = i32(context);
  if (CAUSAL) { seen = min(seen, params.start + i32(step) + 1); }
  let first = first_seen(u32(seen)) + split * LANES;
  let count = u32(clamp(seen - i32(first), 0, i32(LANES)));

  for (var d = lane; d < WIDTH / 4u; d += LANES) {
    let at = q_base + 4u * d;
    query[d] = vec4(f32(q[at]), f32(q[at + 1u]), f32(q[at + 2u]), f32(q[at + 3u])) * params.scale;
  }
  workgroupBarrier();
  let inside = lane < count;
  let key = first + select(0u, lane, inside);
  let k_row = (k_base + cache_row(key) * params.k_strides.y) / KEY_UNIT;
  var score = LOWEST;
  if (inside) {
    var sum = vec4(0.0);
    for (var d = 0u; d < WIDTH / 4u; d++) { sum += query[d] * key_quad(k_row, d); }
    score = capped(dot(sum, vec4(1.0))) + bias(vec4(batch, head, step, key));
  }
  let most = max(row_max(score, lane), LOWEST); // finite even if every key is masked
  let weight = select(0.0, exp(score - most), inside && !is_masked(score));
  weights[lane] = weight;
  let total = row_sum(weight, lane);
  workgroupBarrier();
  let base = (group.y * params.splits + split) * (VALUE_WIDTH + 4u);
  for (var d = lane; d < VALUE_WIDTH; d += LANES) {
    // Keys past the end have weight 0. They are included so that the loop has a constant length, which lets the
    // compiler issue several loads at once.
    var sum = 0.0;
    for (var c = 0u; c < LANES; c++) {
      let row = cache_row(min(first + c, context - 1u));
      sum += weights[c] * value_element(v_base + row * params.v_strides.y, d);
    }
    parts[base + d] = sum;
  }
  if (lane == 0u) {
    parts[base + VALUE_WIDTH] = most;
    parts[base + VALUE_WIDTH + 1u] = total;
  }
}
