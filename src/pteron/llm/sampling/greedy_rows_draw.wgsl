//! use rows
//! use sample
//! use best
//! loops: ceil(block_count, LANES) + 24
//! extent picks: 4 * groups[0] * block_count
//! extent slots: groups[0]
//! extent tokens: slot_count
//! extent positions: slot_count
//! extent drawn: 2 * slot_count * RING
// The likeliest token of each row, from what greedy_rows_scan.wgsl saw of its blocks, and its log-probability: a NaN
// where a logit is one. It becomes the next token of the row's slot, and is remembered with the position of the
// token before it, modulo RING; then the slot's position grows by one. One workgroup takes one row; a row of
// nobody's draws nothing.
const RING = 16u; // draws that are remembered

struct Params {
  block_count: u32,
  slot_count: u32,
}

@group(0) @binding(0) var<storage, read> picks: array<vec4<u32>>;
@group(0) @binding(1) var<storage, read> slots: array<i32>;
@group(0) @binding(2) var<storage, read_write> tokens: array<i32>;
@group(0) @binding(3) var<storage, read_write> positions: array<i32>;
@group(0) @binding(4) var<storage, read_write> drawn: array<vec2<i32>>; // a token, the bits of its log-probability
@group(0) @binding(5) var<uniform> params: Params;

@compute @workgroup_size(WORKGROUP)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) local: u32) {
  let slot = slots[group.x];
  let is_used = slot >= 0 && slot < i32(params.slot_count);
  let base = group.x * params.block_count;
  var most = LOWEST;
  var token = 0xffffffffu;
  var sum = 0.0;
  for (var block = local; block < params.block_count; block += LANES) {
    let pick = picks[base + block];
    let score = bitcast<f32>(pick.x);
    let raised = max(most, score);
    sum = sum * exp(most - raised) + bitcast<f32>(pick.z) * exp(score - raised);
    if (score > most || token == 0xffffffffu) { token = pick.y; }
    most = raised;
  }
  let best = best_of_lanes(most, token, local);
  let total = row_sum(sum * exp(most - bitcast<f32>(best.x)), local);
  if (local == 0u && is_used) {
    let position = u32(max(positions[slot], 0));
    let logprob = select(-log(total), nan(), is_nan(total));
    tokens[slot] = i32(best.y);
    drawn[u32(slot) * RING + position % RING] = vec2(i32(best.y), bitcast<i32>(logprob));
    positions[slot] = i32(position + 1u);
  }
}
