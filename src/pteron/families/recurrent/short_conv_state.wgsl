//! extent x: steps * channels
//! extent places: 2 * steps
//! extent state: slots * (TAPS - 1) * channels
// The state after the steps of one sequence: the last TAPS - 1 of the inputs, those in the state before included. One
// invocation takes one channel.
import package::wgsl::lib::index::{flat_index};
import super::lib::sequences::{is_new};

alias X = f32;
alias S = f32;
const WORKGROUP = 64u;
override TAPS: u32 = 4u;

struct Params {
  steps: u32,
  channels: u32,
  start: i32, // the position of the first step
  slots: u32,
}

@group(0) @binding(0) var<storage, read> x: array<X>;
@group(0) @binding(1) var<storage, read> places: array<vec2<i32>>;
@group(0) @binding(2) var<storage, read_write> state: array<S>;
@group(0) @binding(3) var<uniform> params: Params;

@compute @workgroup_size(WORKGROUP)
fn main(@builtin(global_invocation_id) id: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>) {
  let channel = flat_index(id, groups);
  if (channel >= params.channels) { return; }
  // From the first to the last: what moves within the state moves down.
  //! unroll
  for (var j = 0u; j < TAPS - 1u; j++) { state[j * params.channels + channel] = S(input(params.steps + j, channel)); }
}

fn input(at: u32, channel: u32) -> f32 {
  if (at >= TAPS - 1u) { return f32(x[(at + 1u - TAPS) * params.channels + channel]); }
  if (is_new(0u)) { return 0.0; }
  return f32(state[at * params.channels + channel]);
}
