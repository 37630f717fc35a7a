//! extent x: steps * channels
//! extent weight: TAPS * channels
//! extent bias: channels
//! extent places: 2 * steps
//! extent state: slots * (TAPS - 1) * channels
//! extent out: steps * channels
// out[t, c] = activated(bias[c] + Σ weight[c, j] · x[t + j - TAPS + 1, c] over j < TAPS), where the state has the
// inputs before the first step, [slots, TAPS - 1, channels]. One invocation computes one element. Where IS_STEP, each
// row is a step of its own sequence, and its invocations also move its state on; else short_conv_state does it.
import package::wgsl::lib::index::{flat_index};
import super::lib::sequences::{is_new, slot_of};

alias X = f32;
alias W = f32;
alias B = f32;
alias S = f32;
alias R = f32;
const WORKGROUP = 64u;
override TAPS: u32 = 4u;
override IS_STEP: bool = false; // every row is the only step of its sequence
override IS_SILU: bool = false; // activated(y) = y / (1 + exp(-y))

struct Params {
  steps: u32,
  channels: u32,
  start: i32, // the position of the first step
  slots: u32,
}

@group(0) @binding(0) var<storage, read> x: array<X>;
@group(0) @binding(1) var<storage, read> weight: array<W>;
@group(0) @binding(2) var<storage, read> bias: array<B>;
@group(0) @binding(3) var<storage, read> places: array<vec2<i32>>;
@group(0) @binding(4) var<storage, read_write> state: array<S>;
@group(0) @binding(5) var<storage, read_write> out: array<R>;
@group(0) @binding(6) var<uniform> params: Params;

@compute @workgroup_size(WORKGROUP)
fn main(@builtin(global_invocation_id) id: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>) {
  let i = flat_index(id, groups);
  if (i >= params.steps * params.channels) { return; }
  let row = i / params.channels;
  let channel = i % params.channels;
  let slot = slot_of(row);
  let base = u32(max(slot, 0)) * (TAPS - 1u) * params.channels + channel;
  var inputs = array<f32, TAPS>();
  //! unroll
  for (var j = 0u; j < TAPS; j++) { inputs[j] = input(row, channel, j, base); }
  var sum = first(channel);
  //! unroll
  for (var j = 0u; j < TAPS; j++) { sum += f32(weight[channel * TAPS + j]) * inputs[j]; }
  out[i] = R(activated(sum));
  @if(IS_STEP) if (slot >= 0) {
    //! unroll
    for (var j = 1u; j < TAPS; j++) { state[base + (j - 1u) * params.channels] = S(inputs[j]); }
  }
}

// The input of a row's tap: that of an earlier step, of the call or before it.
fn input(row: u32, channel: u32, tap: u32, base: u32) -> f32 {
  let at = select(row, 0u, IS_STEP) + tap;
  if (at >= TAPS - 1u) { return f32(x[(row + tap + 1u - TAPS) * params.channels + channel]); }
  if (is_new(row)) { return 0.0; }
  return f32(state[base + at * params.channels]);
}

fn first(channel: u32) -> f32 {
  @if(bias) return f32(bias[channel]);
  @else return 0.0;
}

fn activated(y: f32) -> f32 {
  @if(IS_SILU) return y / (1.0 + exp(-y));
  @else return y;
}
