//! extent q: (ceil(groups[2], splits) - 1) * q_strides[0] + (steps - 1) * q_strides[1] + (groups[0] * heads_per_key - 1) * q_strides[2] + WIDTH
//! extent k: (ceil(groups[2], splits) - 1) * k_strides[0] + ((RING or context) - 1) * k_strides[1] + (groups[0] - 1) * k_strides[2] + KEY_ROW
//! extent v: (ceil(groups[2], splits) - 1) * v_strides[0] + ((RING or context) - 1) * v_strides[1] + (groups[0] - 1) * v_strides[2] + VALUE_ROW
//! extent mask: (ceil(groups[2], splits) - 1) * mask_strides[0] + (groups[0] * heads_per_key - 1) * mask_strides[1] + (steps - 1) * mask_strides[2] + (context - 1) * mask_strides[3] + 1
//! extent slopes: groups[0] * heads_per_key
// Attention of many queries: out = softmax(scale · q·kᵀ + bias) · v. Rows are the queries that share a key head, ordered
// by step, then by head. A workgroup computes ROWS rows (of the kernel); if there are few rows, the context is divided
// into `splits` near-equal parts, one workgroup each. The grid is (key head, rows, batch · splits). Queries are read by
// q_strides here, keys and values by the kernel (lib/keys.wgsl, lib/values.wgsl); lib/result.wgsl stores.
import package::wgsl::lib::nan::{minus_infinity};
import super::heads::{KEY_ROW, VALUE_ROW, VALUE_WIDTH, WIDTH};
import super::window::{RING, WINDOW, first_seen};
import super::softcap::{four_capped};
import super::bias::{M, biases};

alias Q = f32;
override CAUSAL: bool = true; // query s sees the context up to start + s
const QUADS = WIDTH / 4u;
const VALUE_QUADS = VALUE_WIDTH / 4u;

struct Params {
  first_query: u32, // 0: one launch computes all queries
  queries: u32, // counted over batch, heads and steps
  splits: u32, // of the context
  steps: u32,
  heads: u32,
  heads_per_key: u32, // query heads that share a key head
  context: i32, // keys to attend to
  start: i32, // position of the first query
  scale: f32,
  q_strides: vec3<u32>, // of (batch, step, head), in elements
  k_strides: vec3<u32>,
  v_strides: vec3<u32>,
  out_strides: vec3<u32>,
  mask_strides: vec4<u32>, // of (batch, head, step, key)
}

@group(0) @binding(0) var<storage, read> q: array<vec4<Q>>;
@group(0) @binding(3) var<storage, read> mask: array<M>;
@group(0) @binding(3) var<storage, read> slopes: array<M>;
@group(0) @binding(4) var<uniform> params: Params;

// What a workgroup computes: the rows from `first` on, and the keys from `begin` to `end` that one of them sees.
struct Span {
  first: u32,
  key_head: u32,
  batch: u32,
  split: u32,
  begin: u32,
  end: u32,
}

fn span_of(group: vec3<u32>, groups: vec3<u32>) -> Span {
  let first = (groups.y - 1u - group.y) * ROWS; // rows with the longest context start first
  let split = group.z % params.splits;
  let context = u32(params.context);
  let low = first_seen(seen_by(first)); // the first row sees the oldest keys
  var high = context;
  if (WINDOW > 0u) { high = seen_by(first + ROWS - 1u); }
  let length = (high - low + params.splits - 1u) / params.splits;
  let last = index_of(first + ROWS - 1u, 0u, 0u).y;
  var end = min(low + (split + 1u) * length, context);
  if (CAUSAL) { end = min(end, u32(params.start) + last + 1u); }
  return Span(first, group.x, group.z / params.splits, split, low + split * length, end);
}

// (batch, step, head) of a row; for a row past the end, those of the last row.
fn index_of(row: u32, key_head: u32, batch: u32) -> vec3<u32> {
  let at = min(row, params.steps * params.heads_per_key - 1u);
  let head = key_head * params.heads_per_key + at % params.heads_per_key;
  return vec3(batch, at / params.heads_per_key, head);
}

// One past the last key that a row sees.
fn seen_by(row: u32) -> u32 {
  if (!CAUSAL) { return u32(params.context); }
  return min(u32(params.context), u32(params.start) + index_of(row, 0u, 0u).y + 1u);
}

// The scores of a row for four keys with the mask added; -∞ for keys that the row does not see.
fn shown(scores: vec4<f32>, oldest: u32, seen: u32, index: vec3<u32>, key: u32) -> vec4<f32> {
  let keys = key + vec4(0u, 1u, 2u, 3u);
  let known = min(keys, vec4(u32(params.context) - 1u));
  let is_seen = (keys >= vec4(oldest)) & (keys < vec4(seen));
  return select(vec4(minus_infinity()), four_capped(scores) + biases(index.xzy, known), is_seen);
}
