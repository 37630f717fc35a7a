//! loops: window
//! extent x: outer * size * inner
//! extent before: outer * size * inner
//! extent out: outer * out_size * inner
//! extent indices: outer * out_size * inner
// out[o, p, i] = the average of x[o, k, i] for k from ⌊p · size / out_size⌋ to ⌈(p + 1) · size / out_size⌉; with `indices`, the
// largest of them, and indices[o, p, i] = k · plane + the index of that element along the dims after, `before`, if they are
// pooled already. One invocation computes one. Of equal elements the first counts. A NaN is the largest; of several the last
// counts.
import package::wgsl::lib::index::{flat_index};
import package::wgsl::lib::nan::{is_nan, minus_infinity};

alias X = f32;
alias R = f32;
alias I = i32;
const WORKGROUP = 64u;

struct Params {
  outer: u32,
  size: u32,
  out_size: u32,
  inner: u32,
  window: u32, // elements that an invocation takes at most
  @if(indices) plane: u32,
}

@group(0) @binding(0) var<storage, read> x: array<X>;
@group(0) @binding(1) var<storage, read> before: array<i32>;
@group(0) @binding(2) var<storage, read_write> out: array<R>;
@group(0) @binding(3) var<storage, read_write> indices: array<I>;
@group(0) @binding(4) var<uniform> params: Params;

fn index_before(element: u32) -> u32 {
  @if(before) return u32(before[element]);
  @else return 0u;
}

@compute @workgroup_size(WORKGROUP)
fn main(@builtin(global_invocation_id) id: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>) {
  let i = flat_index(id, groups);
  let p = i / params.inner % params.out_size;
  let o = i / params.inner / params.out_size;
  if (o >= params.outer) { return; }
  let first = p * params.size / params.out_size;
  let end = ((p + 1u) * params.size + params.out_size - 1u) / params.out_size;
  let base = o * params.size * params.inner + i % params.inner;
  @if(indices) {
    var best = minus_infinity();
    var found = first;
    for (var k = first; k < end; k++) {
      let value = f32(x[base + k * params.inner]);
      if (value > best || is_nan(value)) {
        best = value;
        found = k;
      }
    }
    out[i] = R(best);
    indices[i] = I(found * params.plane + index_before(base + found * params.inner));
  }
  @else {
    var sum = 0.0;
    for (var k = first; k < end; k++) { sum += f32(x[base + k * params.inner]); }
    out[i] = R(sum / f32(end - first));
  }
}
