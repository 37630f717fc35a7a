//! loops: ceil(block, LANES) + 2 * ceil(BINS, LANES)
//! extent logits: base + vocabulary * groups[1]
//! extent seen: vocabulary
//! extent blocks: 4 * block_count * groups[1]
//! extent limit: 2 * groups[1] - 1
//! extent search: 2 * groups[1] - 1
//! extent tallies: groups[0] * groups[1] * BINS
// A histogram of a block: the weight of its tokens by eight bits of their place in the order of logits, from bit
// `shift` on, over the tokens whose higher bits the search has found. A token weighs 1 (COUNTS) or
// exp((logit - likeliest) / temperature). One workgroup takes one block and adds multiples of 2^-40, so the sum does
// not depend on the order. A block has at most 2048 tokens, so neither half overflows.
import package::wgsl::lib::rows::{LANES, WORKGROUP};
import super::lib::likeliest::{likeliest};
import super::lib::row::{base_of, first_block, row_of};
import super::lib::sample::{REACH, penalised, place};
import super::lib::settings::{COUNTS, is_unfiltered, temperature_of};

alias X = f32;
const BINS = 256u;

struct Params {
  vocabulary: u32,
  base: u32, // start of the last row of logits
  block: u32, // tokens per workgroup
  block_count: u32,
  shift: u32,
  temperature: i32, // the bits of an f32
  penalty: i32, // the bits of an f32
}

@group(0) @binding(0) var<storage, read> logits: array<X>;
@group(0) @binding(1) var<storage, read> seen: array<u32>;
@group(0) @binding(2) var<storage, read> blocks: array<vec4<f32>>;
@group(0) @binding(3) var<storage, read> limit: array<u32>;
@group(0) @binding(4) var<storage, read> search: array<u32>;
@group(0) @binding(5) var<storage, read_write> tallies: array<f32>;
@group(0) @binding(6) var<uniform> params: Params;

var<workgroup> whole: array<atomic<u32>, BINS>; // in 2^-20
var<workgroup> rest: array<atomic<u32>, BINS>; // in 2^-40

fn was_seen(token: u32) -> bool {
  @if(seen) return seen[token] != 0u;
  @else return false;
}

// The last place that is kept.
fn last_place(row: u32) -> u32 {
  @if(limit) return limit[2u * row];
  @else return 0xffffffffu;
}

fn add(bin: u32, weight: f32) {
  let scaled = weight * 0x1p20;
  let units = u32(scaled);
  atomicAdd(&whole[bin], units);
  if (!COUNTS) { atomicAdd(&rest[bin], u32((scaled - f32(units)) * 0x1p20)); }
}

@compute @workgroup_size(WORKGROUP)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) local: u32) {
  if (is_unfiltered(group)) { return; }
  for (var bin = local; bin < BINS; bin += LANES) {
    atomicStore(&whole[bin], 0u);
    atomicStore(&rest[bin], 0u);
  }
  let most = likeliest(group, local); // its barriers part the zeros from the sums
  let base = base_of(group);
  let temperature = temperature_of(group);
  let known = (0xffffffffu << params.shift) << 8u;
  let last = last_place(row_of(group));
  let found = search[2u * row_of(group)];
  let first = group.x * params.block;
  let end = min(first + params.block, params.vocabulary);
  for (var token = first + local; token < end; token += LANES) {
    let value = penalised(f32(logits[base + token]), was_seen(token), bitcast<f32>(params.penalty));
    let here = place(value);
    if (value - most < -REACH * temperature || here > last) { continue; }
    if (((here ^ found) & known) != 0u) { continue; }
    let weight = select(min(exp((value - most) / temperature), 1.0), 1.0, COUNTS);
    add((here >> params.shift) & 255u, weight);
  }
  workgroupBarrier();
  for (var bin = local; bin < BINS; bin += LANES) {
    let total = f32(atomicLoad(&whole[bin])) * 0x1p-20 + f32(atomicLoad(&rest[bin])) * 0x1p-40;
    tallies[(first_block(group) + group.x) * BINS + bin] = total;
  }
}
