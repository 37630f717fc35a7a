//! use rows
//! use sample
//! use best
//! loops: ceil(block, LANES) + 24
//! extent logits: groups[1] * vocabulary
//! extent picks: 4 * groups[0] * groups[1]
// First look at rows of logits: per row and block of neighbouring tokens, the greatest logit, the first token that
// has it, and the sum of exp(logit - greatest), a NaN where one is. One workgroup takes one block of one row.
alias X = f32;
const AHEAD = 8u; // logits that a lane loads before it looks at the first of them

struct Params {
  vocabulary: u32,
  block: u32, // tokens per workgroup
}

@group(0) @binding(0) var<storage, read> logits: array<X>;
@group(0) @binding(1) var<storage, read_write> picks: array<vec4<u32>>; // bits of the logit, token, bits of the sum
@group(0) @binding(2) var<uniform> params: Params;

@compute @workgroup_size(WORKGROUP)
fn main(
  @builtin(workgroup_id) group: vec3<u32>,
  @builtin(num_workgroups) groups: vec3<u32>,
  @builtin(local_invocation_index) local: u32,
) {
  let base = group.y * params.vocabulary;
  let first = group.x * params.block;
  let end = min(first + params.block, params.vocabulary);
  var most = LOWEST;
  var likeliest = first;
  var sum = 0.0; // of exp(logit - most), so far
  for (var start = first + local; start < end; start += LANES * AHEAD) {
    var values: array<f32, AHEAD>;
    //! unroll
    for (var i = 0u; i < AHEAD; i++) { values[i] = f32(logits[base + min(start + i * LANES, end - 1u)]); }
    let before = most;
    //! unroll
    for (var i = 0u; i < AHEAD; i++) {
      let token = start + i * LANES;
      let is_more = token < end && finite(values[i]) > most;
      most = select(most, finite(values[i]), is_more);
      likeliest = select(likeliest, token, is_more);
    }
    sum *= exp(before - most);
    //! unroll
    for (var i = 0u; i < AHEAD; i++) {
      let weight = select(exp(finite(values[i]) - most), nan(), is_nan(values[i]));
      sum += select(0.0, weight, start + i * LANES < end);
    }
  }
  let best = best_of_lanes(most, likeliest, local);
  let total = row_sum(sum * exp(most - bitcast<f32>(best.x)), local);
  if (local == 0u) { picks[group.y * groups.x + group.x] = vec4(best, bitcast<u32>(total), 0u); }
}
