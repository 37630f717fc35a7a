//! loops: OWN * (5 + 2 * KEPT + 2 * GROUPS * (1 + GROUP_BEST) + GROUPS) + GROUPS * (1 + 18 * GROUP_BEST)
//! loops: 28 * KEPT + 40
//! extent logits: rows * EXPERTS
//! extent bias: EXPERTS
//! extent weights: rows * KEPT
//! extent experts: rows * KEPT
// Chooses KEPT of EXPERTS for each row of logits: those with the highest score + bias, the first of equal ones.
// Their scores are their weights. Of GROUPS groups of experts, all but GROUPS_KEPT are excluded: a group counts as much
// as the sum of its GROUP_BEST best. LANES invocations share a row; lane l has experts l, l + LANES, ...
import package::wgsl::lib::rows::{LANES, WORKGROUP, larger, row_index, row_max, row_sum};

alias X = f32;
alias D = f32;
alias R = f32;
override EXPERTS: u32 = 8u;
override KEPT: u32 = 2u;
override GROUPS: u32 = 1u;
override GROUPS_KEPT: u32 = 1u;
override GROUP_BEST: u32 = 1u;
override IS_SIGMOID: bool = false; // scores are sigmoids, else a softmax
override IS_NORMALISED: bool = false; // weights are divided by their sum
const OWN = (EXPERTS + LANES - 1u) / LANES;
const SIZE = EXPERTS / GROUPS; // of a group
const EXCLUDED = -2e38;
const TAKEN = -3e38;

struct Params {
  rows: u32,
  scale: f32,
}

@group(0) @binding(0) var<storage, read> logits: array<X>;
@group(0) @binding(1) var<storage, read> bias: array<D>;
@group(0) @binding(2) var<storage, read_write> weights: array<R>;
@group(0) @binding(3) var<storage, read_write> experts: array<i32>;
@group(0) @binding(4) var<uniform> params: Params;

fn correction(expert: u32) -> f32 {
  @if(bias) return f32(bias[expert]);
  @else return 0.0;
}

// The smallest of the lanes' numbers of experts.
fn row_first(expert: u32, local: u32) -> u32 { return u32(-row_max(-f32(expert), local)); }

@compute @workgroup_size(WORKGROUP)
fn main(
  @builtin(workgroup_id) group: vec3<u32>,
  @builtin(num_workgroups) groups: vec3<u32>,
  @builtin(local_invocation_index) local: u32,
) {
  let row = row_index(group, groups, local);
  let m = min(row, params.rows - 1u);
  let lane = local % LANES;
  var scores: array<f32, OWN>;
  var most = f32(logits[m * EXPERTS]);
  for (var i = 0u; i < OWN; i++) {
    scores[i] = f32(logits[m * EXPERTS + min(i * LANES + lane, EXPERTS - 1u)]);
    most = larger(most, scores[i]);
  }
  if (!IS_SIGMOID) { most = row_max(most, local); }
  var total = 0.0;
  for (var i = 0u; i < OWN; i++) {
    scores[i] = select(exp(scores[i] - most), 1.0 / (1.0 + exp(-scores[i])), IS_SIGMOID);
    total += select(0.0, scores[i], i * LANES + lane < EXPERTS);
  }
  if (!IS_SIGMOID) { total = row_sum(total, local); }
  var choice: array<f32, OWN>; // what experts are chosen by
  for (var i = 0u; i < OWN; i++) {
    let expert = i * LANES + lane;
    if (!IS_SIGMOID) { scores[i] /= total; }
    choice[i] = select(TAKEN, scores[i] + correction(min(expert, EXPERTS - 1u)), expert < EXPERTS);
  }

  if (GROUPS > 1u) {
    var sums: array<f32, GROUPS>;
    for (var g = 0u; g < GROUPS; g++) {
      var counted = EXPERTS; // the best of the group
      for (var b = 0u; b < GROUP_BEST; b++) {
        var best = TAKEN;
        var first = EXPERTS;
        for (var i = 0u; i < OWN; i++) {
          let expert = i * LANES + lane;
          if (expert / SIZE == g && expert != counted && choice[i] > best) {
            best = choice[i];
            first = expert;
          }
        }
        let value = row_max(best, local);
        sums[g] += value;
        counted = row_first(select(EXPERTS, first, best == value), local);
      }
    }
    for (var i = 0u; i < OWN; i++) {
      let g = min((i * LANES + lane) / SIZE, GROUPS - 1u);
      var before = 0u;
      for (var other = 0u; other < GROUPS; other++) {
        before += select(0u, 1u, sums[other] > sums[g] || (sums[other] == sums[g] && other < g));
      }
      if (before >= GROUPS_KEPT) { choice[i] = min(choice[i], EXCLUDED); }
    }
  }

  var values: array<f32, KEPT>;
  var sum = 0.0;
  for (var j = 0u; j < KEPT; j++) {
    var best = TAKEN;
    var first = EXPERTS;
    for (var i = 0u; i < OWN; i++) {
      if (choice[i] > best) {
        best = choice[i];
        first = i * LANES + lane;
      }
    }
    let value = row_max(best, local);
    let expert = min(row_first(select(EXPERTS, first, best == value), local), EXPERTS - 1u);
    let is_own = expert % LANES == lane;
    values[j] = value;
    @if(bias) values[j] = row_max(select(-1.0, scores[expert / LANES], is_own), local);
    if (is_own) { choice[expert / LANES] = TAKEN; }
    sum += values[j];
    if (lane == 0u && row < params.rows) { experts[row * KEPT + j] = i32(expert); }
  }
  if (lane == 0u && row < params.rows) {
    let factor = select(params.scale, params.scale / max(sum, 1e-20), IS_NORMALISED);
    for (var j = 0u; j < KEPT; j++) { weights[row * KEPT + j] = R(values[j] * factor); }
  }
}
