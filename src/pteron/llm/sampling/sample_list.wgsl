//! loops: LISTED * (ceil(block, LANES) + 9)
//! extent logits: base + vocabulary * groups[1]
//! extent listed: 2 * LISTED * groups[0] * groups[1]
// The likeliest tokens of a block in order: the greater logit first, of equal ones the lesser token. Tokens whose
// logit is NaN or -inf are left out. One workgroup takes one block, and reads all of it for every rank.
import package::wgsl::lib::nan::{LOWEST};
import package::wgsl::lib::rows::{LANES, WORKGROUP};
import super::lib::best::{best_of_lanes};
import super::lib::row::{base_of, first_block};
import super::lib::sample::{finite};

alias X = f32;
override LISTED: u32 = 20u; // the most ranks

struct Params {
  vocabulary: u32,
  base: u32, // start of the last row of logits
  block: u32, // tokens per workgroup
  count: i32, // wanted ranks
}

@group(0) @binding(0) var<storage, read> logits: array<X>;
@group(0) @binding(1) var<storage, read_write> listed: array<vec2<u32>>; // the bits of a logit, its token or NONE
@group(0) @binding(2) var<uniform> params: Params;

const NONE = 0xffffffffu;

@compute @workgroup_size(WORKGROUP)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) local: u32) {
  let base = base_of(group);
  let first = group.x * params.block;
  let end = min(first + params.block, params.vocabulary);
  var last = -LOWEST; // logit and token of the rank before
  var last_token = NONE;
  for (var rank = 0u; rank < min(u32(params.count), LISTED); rank++) {
    var best = LOWEST;
    var best_token = NONE;
    for (var token = first + local; token < end; token += LANES) {
      let value = finite(f32(logits[base + token]));
      let is_next = rank == 0u || value < last || (value == last && token > last_token);
      if (is_next && value > best) {
        best = value;
        best_token = token;
      }
    }
    let found = best_of_lanes(best, best_token, local);
    workgroupBarrier(); // all lanes have read it before the next rank is written
    last = bitcast<f32>(found.x);
    last_token = found.y;
    if (local == 0u) { listed[(first_block(group) + group.x) * LISTED + rank] = found; }
  }
}
