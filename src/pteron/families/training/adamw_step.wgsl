//! extent param: count
//! extent m: count
//! extent v: count
//! extent grad: count
//! extent param_out: count
//! extent m_out: count
//! extent v_out: count
// m = β₁·m + (1 - β₁)·g,  v = β₂·v + (1 - β₂)·g²,  p = decay·p - step · m / (√(v · scale) + ε), with
// step = learning rate / bias correction of m and scale = 1 / bias correction of v. One invocation updates one
// element in place and writes it to the outputs.
import package::wgsl::lib::index::{flat_index};

alias P = f32;
alias M = f32;
alias V = f32;
alias G = f32;
alias PR = f32;
alias MR = f32;
alias VR = f32;
const WORKGROUP = 64u;

struct Params {
  count: u32,
  decay: f32,
  beta_first: f32,
  rest_first: f32,
  beta_second: f32,
  rest_second: f32,
  step: f32,
  scale_second: f32,
  epsilon: f32,
}

@group(0) @binding(0) var<storage, read_write> param: array<P>;
@group(0) @binding(1) var<storage, read_write> m: array<M>;
@group(0) @binding(2) var<storage, read_write> v: array<V>;
@group(0) @binding(3) var<storage, read> grad: array<G>;
@group(0) @binding(4) var<storage, read_write> param_out: array<PR>;
@group(0) @binding(5) var<storage, read_write> m_out: array<MR>;
@group(0) @binding(6) var<storage, read_write> v_out: array<VR>;
@group(0) @binding(7) var<uniform> params: Params;

@compute @workgroup_size(WORKGROUP)
fn main(@builtin(global_invocation_id) id: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>) {
  let i = flat_index(id, groups);
  if (i >= params.count) { return; }
  let g = f32(grad[i]);
  let first = params.beta_first * f32(m[i]) + params.rest_first * g;
  let second = params.beta_second * f32(v[i]) + params.rest_second * g * g;
  let change = params.step * first / (sqrt(second * params.scale_second) + params.epsilon);
  let next = params.decay * f32(param[i]) - change;
  param[i] = P(next);
  m[i] = M(first);
  v[i] = V(second);
  param_out[i] = PR(next);
  m_out[i] = MR(first);
  v_out[i] = VR(second);
}
