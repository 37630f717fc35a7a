//! loops: 2 * OWN + steps * (OWN + 9)
//! extent xbc: sequences * length * (heads * width + 2 * group_count * STATE)
//! extent dt: sequences * length * heads
//! extent a: heads
//! extent d: heads
//! extent dt_bias: heads
//! extent places: 2 * sequences
//! extent state: slots * heads * width * STATE
//! extent out: sequences * length * heads * width
// The scan of Mamba-2: state = exp(dt · a) · state + dt · x ⊗ B, out = state · C + d · x, with
// dt = clamp(softplus(dt + dt_bias)) and a state [width, STATE] for each head.
//
// A row is one of the `width` rows of a head's state. LANES invocations share it and keep it in registers while they
// go through the steps; lane l has columns l, l + LANES, ... A step of xbc is x [heads, width], B and C
// [groups, STATE]; the heads of a group have the same B and C. A sequence at position 0 begins with zeros.
import package::wgsl::lib::rows::{LANES, WORKGROUP, row_index, row_sum};
import super::lib::sequences::{is_new, slot_of};

alias X = f32;
alias A = f32;
alias R = f32;
override STATE: u32 = 64u; // columns of a state
const OWN = (STATE + LANES - 1u) / LANES;

struct Params {
  sequences: u32,
  length: u32, // steps of a sequence
  first: u32, // the first step of this launch
  steps: u32, // of this launch
  heads: u32,
  width: u32, // rows of a head's state
  group_count: u32, // of heads with the same B and C
  slots: u32, // states
  start: i32, // the position of the first step of this launch
  dt_min: f32,
  dt_max: f32,
}

@group(0) @binding(0) var<storage, read> xbc: array<X>;
@group(0) @binding(1) var<storage, read> dt: array<X>;
@group(0) @binding(2) var<storage, read> a: array<A>;
@group(0) @binding(3) var<storage, read> d: array<A>;
@group(0) @binding(4) var<storage, read> dt_bias: array<A>;
@group(0) @binding(5) var<storage, read> places: array<vec2<i32>>;
@group(0) @binding(6) var<storage, read_write> state: array<f32>;
@group(0) @binding(7) var<storage, read_write> out: array<R>;
@group(0) @binding(8) var<uniform> params: Params;

// log(1 + exp(x)) as max(x, 0) + log1p(e), with log1p(e) = 2 · artanh(e / (2 + e)): the logarithm of a number near 1
// would lose the digits of small steps.
fn softplus(x: f32) -> f32 {
  let e = exp(-abs(x));
  let z = e / (2.0 + e);
  let s = z * z;
  var p = 1.0 / 15.0;
  p = p * s + 1.0 / 13.0;
  p = p * s + 1.0 / 11.0;
  p = p * s + 1.0 / 9.0;
  p = p * s + 1.0 / 7.0;
  p = p * s + 0.2;
  p = p * s + 1.0 / 3.0;
  return max(x, 0.0) + 2.0 * z * (1.0 + p * s);
}

@compute @workgroup_size(WORKGROUP)
fn main(
  @builtin(workgroup_id) group: vec3<u32>,
  @builtin(num_workgroups) groups: vec3<u32>,
  @builtin(local_invocation_index) local: u32,
) {
  let rows = params.heads * params.width; // of a sequence
  let row = row_index(group, groups, local);
  let sequence = min(row / rows, params.sequences - 1u);
  let inner = row % rows;
  let head = inner / params.width;
  let lane = local % LANES;
  let slot = slot_of(sequence);
  let base = (u32(max(slot, 0)) * rows + inner) * STATE;
  var kept: array<f32, OWN>;
  for (var i = 0u; i < OWN; i++) {
    kept[i] = select(state[base + min(i * LANES + lane, STATE - 1u)], 0.0, is_new(sequence));
  }

  let stride = rows + 2u * params.group_count * STATE;
  let b_base = rows + head / (params.heads / params.group_count) * STATE;
  let c_offset = params.group_count * STATE;
  let rate = f32(a[head]);
  let bias = f32(dt_bias[head]);
  let skip = f32(d[head]);
  for (var t = 0u; t < params.steps; t++) {
    let at = sequence * params.length + params.first + t;
    let x = f32(xbc[at * stride + inner]);
    let step = clamp(softplus(f32(dt[at * params.heads + head]) + bias), params.dt_min, params.dt_max);
    let decay = exp(step * rate);
    var sum = 0.0;
    for (var i = 0u; i < OWN; i++) {
      let column = i * LANES + lane;
      let b_at = at * stride + b_base + min(column, STATE - 1u);
      kept[i] = kept[i] * decay + step * x * f32(xbc[b_at]);
      sum += select(0.0, kept[i] * f32(xbc[b_at + c_offset]), column < STATE);
    }
    let total = row_sum(sum, local);
    if (lane == 0u && row < params.sequences * rows) { out[at * rows + inner] = R(total + skip * x); }
  }

  if (slot >= 0 && row < params.sequences * rows) {
    for (var i = 0u; i < OWN; i++) {
      let column = i * LANES + lane;
      if (column < STATE) { state[base + column] = kept[i]; }
    }
  }
}
