//! loops: kept
//! extent x: count * kept
//! extent weights: ceil(count, width) * kept
//! extent residual: count
//! extent out: count
// out[t, n] = Σ weights[t, j] · x[t, j, n] over j, plus a residual. One invocation computes one element.
import package::wgsl::lib::index::{flat_index};

alias X = f32;
alias W = f32;
alias R = f32;
const WORKGROUP = 64u;

struct Params {
  count: u32,
  kept: u32,
  width: u32,
}

@group(0) @binding(0) var<storage, read> x: array<X>;
@group(0) @binding(1) var<storage, read> weights: array<W>;
@group(0) @binding(2) var<storage, read_write> out: array<R>;
@group(0) @binding(3) var<uniform> params: Params;
@group(0) @binding(4) var<storage, read> residual: array<R>;

fn added(i: u32) -> f32 {
  @if(residual) return f32(residual[i]);
  @else return 0.0;
}

@compute @workgroup_size(WORKGROUP)
fn main(@builtin(global_invocation_id) id: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>) {
  let i = flat_index(id, groups);
  if (i >= params.count) { return; }
  let token = i / params.width;
  var sum = 0.0;
  for (var j = 0u; j < params.kept; j++) {
    let pair = token * params.kept + j;
    sum += f32(weights[pair]) * f32(x[pair * params.width + i % params.width]);
  }
  out[i] = R(sum + added(i));
}
