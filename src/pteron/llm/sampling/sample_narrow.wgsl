//! loops: block_count + 8
//! extent tallies: block_count * groups[1] * BINS
//! extent search: 2 * groups[1]
//! extent limit: 2 * groups[1] - 1
// One step of a search for the last place that is kept, best first: of 256 bins, the first at which the weight
// reaches the goal, or else the last that is not empty. The goal is `top_k` tokens or `top_p` of the weight.
// One workgroup takes one row, one invocation one bin. A row that is not filtered keeps its limit.
import super::lib::row::{first_block, row_of};
import super::lib::settings::{COUNTS, is_unfiltered, top_k_of, top_p_of};

const BINS = 256u;

struct Params {
  block_count: u32,
  shift: u32, // the lowest of the eight bits of the bins: 24 first, 0 last
  top_k: i32,
  top_p: i32, // the bits of an f32
}

@group(0) @binding(0) var<storage, read> tallies: array<f32>;
@group(0) @binding(1) var<storage, read_write> search: array<u32>; // the place so far, the goal left (f32)
@group(0) @binding(2) var<storage, read> limit: array<u32>;
@group(0) @binding(3) var<uniform> params: Params;

var<workgroup> reached: array<f32, BINS>; // the weight of a bin and of those before it
var<workgroup> goal: f32;
var<workgroup> first_enough: atomic<u32>;
var<workgroup> last_filled: atomic<u32>;

// The last place that an earlier search kept.
fn limit_before(row: u32) -> u32 {
  @if(limit) return limit[2u * row];
  @else return 0xffffffffu;
}

@compute @workgroup_size(BINS)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) bin: u32) {
  let place = 2u * row_of(group);
  if (is_unfiltered(group)) {
    if (bin == 0u) { search[place] = limit_before(row_of(group)); }
    return;
  }
  let first = first_block(group);
  var weight = 0.0;
  for (var block = first; block < first + params.block_count; block++) { weight += tallies[block * BINS + bin]; }
  reached[bin] = weight;
  for (var step = 1u; step < BINS; step *= 2u) {
    workgroupBarrier();
    var before = 0.0;
    if (bin >= step) { before = reached[bin - step]; }
    workgroupBarrier();
    reached[bin] += before;
  }
  workgroupBarrier();
  if (bin == 0u) {
    atomicStore(&first_enough, BINS);
    atomicStore(&last_filled, 0u);
    goal = bitcast<f32>(search[place + 1u]);
    if (params.shift == 24u) {
      @if(COUNTS) goal = f32(top_k_of(group));
      @else goal = top_p_of(group) * reached[BINS - 1u];
    }
  }
  workgroupBarrier();
  if (weight > 0.0) {
    atomicMax(&last_filled, bin);
    if (reached[bin] >= goal) { atomicMin(&first_enough, bin); }
  }
  workgroupBarrier();
  if (bin == 0u) {
    let chosen = min(atomicLoad(&first_enough), atomicLoad(&last_filled));
    search[place] = select(search[place], 0u, params.shift == 24u) | (chosen << params.shift);
    if (chosen > 0u) { goal -= reached[chosen - 1u]; }
    search[place + 1u] = bitcast<u32>(goal);
  }
}
