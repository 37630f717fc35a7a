//! loops: ceil(width, LANES) + ceil(width, BLOCK * LANES) + ceil(work, LANES) + 8
//! extent q: count // all * heads * width
//! extent q_out: count // all * heads * width
//! extent k: count // all * key_heads * width
//! extent k_out: (count // (all * steps) - 1) * out_stride + (RING or cache_start + steps) * key_heads * width
//! extent query_weight: width
//! extent key_weight: width
//! extent cosines: (start + steps - 1) * angle_strides[0] + (heads - 1) * angle_strides[1] + columns
//! extent sines: (start + steps - 1) * angle_strides[0] + (heads - 1) * angle_strides[1] + columns
// Norms the heads of queries and keys, x · weight / sqrt(mean(x²) + eps), and rotates them as rope.wgsl does.
// LANES invocations share a head: they add up its squares, then each moves its pairs.
import package::wgsl::lib::rows::{LANES, WORKGROUP, row_index, row_sum};
import package::wgsl::lib::sums::{BLOCK, carry};
import package::wgsl::lib::rope_pairs::{places_of, rotate};
import super::lib::out_base::{out_base};

alias Q = f32;
alias K = f32;
alias QueryWeight = f32;
alias KeyWeight = f32;
alias KeyOut = f32;
alias C = f32;

struct Params {
  count: u32, // heads, over all batches and steps
  work: u32, // pairs, and elements that are copied, of a head
  all: u32, // heads of a step: of q, of k
  steps: u32,
  heads: u32,
  key_heads: u32,
  width: u32,
  rotary: u32,
  columns: u32, // of the tables that a head reads
  start: i32, // the tables' row of the first step
  cache_start: i32, // of the first step, among those of k_out
  out_stride: u32, // elements between the batches of k_out
  query_eps: f32,
  key_eps: f32,
  angle_strides: vec2<u32>, // of (step, head), in elements of the tables
}

@group(0) @binding(0) var<storage, read> q: array<Q>;
@group(0) @binding(1) var<storage, read> k: array<K>;
@group(0) @binding(2) var<storage, read> query_weight: array<QueryWeight>;
@group(0) @binding(3) var<storage, read> key_weight: array<KeyWeight>;
@group(0) @binding(4) var<storage, read> cosines: array<C>;
@group(0) @binding(5) var<storage, read> sines: array<C>;
@group(0) @binding(6) var<storage, read_write> q_out: array<Q>;
@group(0) @binding(7) var<storage, read_write> k_out: array<KeyOut>;
@group(0) @binding(8) var<uniform> params: Params;

@compute @workgroup_size(WORKGROUP)
fn main(
  @builtin(workgroup_id) group: vec3<u32>,
  @builtin(num_workgroups) groups: vec3<u32>,
  @builtin(local_invocation_index) local: u32,
) {
  let i = row_index(group, groups, local);
  let lane = local % LANES;
  let width = select(0u, params.width, i < params.count);
  let row = i / params.all; // a step of a batch
  let is_key = i % params.all >= params.heads;
  let head = i % params.all - select(0u, params.heads, is_key);
  let base = (row * select(params.heads, params.key_heads, is_key) + head) * params.width;
  var squares = vec2(0.0);
  for (var block = lane; block < width; block += BLOCK * LANES) {
    var sum = 0.0;
    for (var d = block; d < min(block + BLOCK * LANES, width); d += LANES) {
      let value = element(base + d, is_key);
      sum += value * value;
    }
    squares = carry(squares, sum, block / (BLOCK * LANES));
  }
  let eps = select(params.query_eps, params.key_eps, is_key);
  let scale = inverseSqrt(row_sum(squares.x + squares.y, local) / f32(params.width) + eps);
  for (var pair = lane; pair < select(0u, params.work, width > 0u); pair += LANES) {
    let at = places_of(pair);
    let x = vec2(element(base + at.x, is_key), element(base + at.y, is_key));
    let normed = x * scale * vec2(weight(at.x, is_key), weight(at.y, is_key));
    let rotated = rotate(normed, row, head, pair);
    if (is_key) {
      let to = out_base(row, head) + at;
      k_out[to.x] = KeyOut(rotated.x);
      k_out[to.y] = KeyOut(rotated.y);
    } else {
      q_out[base + at.x] = Q(rotated.x);
      q_out[base + at.y] = Q(rotated.y);
    }
  }
}

fn element(at: u32, is_key: bool) -> f32 {
  if (is_key) { return f32(k[at]); }
  return f32(q[at]);
}

fn weight(at: u32, is_key: bool) -> f32 {
  if (is_key) { return f32(key_weight[at]); }
  return f32(query_weight[at]);
}
