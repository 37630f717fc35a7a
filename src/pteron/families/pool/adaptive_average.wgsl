//! loops: window
//! extent x: outer * size * inner
//! extent out: outer * out_size * inner
// out[o, p, i] = the average of x[o, k, i] for k from ⌊p · size / out_size⌋ to ⌈(p + 1) · size / out_size⌉. One
// invocation computes one average.
import package::wgsl::lib::index::{flat_index};

alias X = f32;
alias R = f32;
const WORKGROUP = 64u;

struct Params {
  outer: u32,
  size: u32,
  out_size: u32,
  inner: u32,
  window: u32, // elements that an average has at most
}

@group(0) @binding(0) var<storage, read> x: array<X>;
@group(0) @binding(1) var<storage, read_write> out: array<R>;
@group(0) @binding(2) var<uniform> params: Params;

@compute @workgroup_size(WORKGROUP)
fn main(@builtin(global_invocation_id) id: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>) {
  let i = flat_index(id, groups);
  let p = i / params.inner % params.out_size;
  let o = i / params.inner / params.out_size;
  if (o >= params.outer) { return; }
  let first = p * params.size / params.out_size;
  let end = ((p + 1u) * params.size + params.out_size - 1u) / params.out_size;
  let base = o * params.size * params.inner + i % params.inner;
  var sum = 0.0;
  for (var k = first; k < end; k++) { sum += f32(x[base + k * params.inner]); }
  out[i] = R(sum / f32(end - first));
}
