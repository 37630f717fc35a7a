//! loops: block_count + 8
//! extent tallies: block_count * BINS
//! extent search: 2
// One step of a search for the last place that is kept, best first: of 256 bins, the first with which the
// weight reaches the goal, or else the last with any. The goal is `top_k` tokens or `top_p` of the weight.
// One workgroup, one invocation per bin.
const BINS = 256u;

struct Params {
  block_count: u32,
  shift: u32, // which bits of the place the bins are: 24 at first, 0 at last
  top_k: i32, // 0: the goal is a share
  top_p: i32, // the bits of an f32
}

@group(0) @binding(0) var<storage, read> tallies: array<f32>;
@group(0) @binding(1) var<storage, read_write> search: array<u32>; // the place so far, the goal left (f32)
@group(0) @binding(2) var<uniform> params: Params;

var<workgroup> reached: array<f32, BINS>; // the weight of a bin and of those before it
var<workgroup> goal: f32;
var<workgroup> first_enough: atomic<u32>;
var<workgroup> last_filled: atomic<u32>;

@compute @workgroup_size(BINS)
fn main(@builtin(local_invocation_index) bin: u32) {
  var weight = 0.0;
  for (var block = 0u; block < params.block_count; block++) { weight += tallies[block * BINS + bin]; }
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
    goal = bitcast<f32>(search[1]);
    if (params.shift == 24u) {
      goal = select(bitcast<f32>(params.top_p) * reached[BINS - 1u], f32(params.top_k), params.top_k > 0);
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
    search[0] = select(search[0], 0u, params.shift == 24u) | (chosen << params.shift);
    if (chosen > 0u) { goal -= reached[chosen - 1u]; }
    search[1] = bitcast<u32>(goal);
  }
}
