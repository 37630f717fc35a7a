//! loops: depth
//! extent a: batch * rows * depth
//! extent b: batch * columns * depth
//! extent out: batch * rows * columns
// out[z, m, n] = the norm of a[z, m] - b[z, n] over k, the distance between two points: (Σ |a - b|^p)^(1 / p). It is
// Euclidean, p = 2, unless a boolean below says otherwise. One invocation computes one distance.
import package::wgsl::lib::index::{flat_index};
import package::wgsl::lib::nan::{is_nan};
@if(IS_POWER) import package::wgsl::lib::power::{power};

alias A = f32;
alias B = f32;
alias R = f32;
const WORKGROUP = 64u;
override IS_COUNT: bool = false; // p = 0: how many coordinates differ
override IS_SUM: bool = false; // p = 1
override IS_LARGEST: bool = false; // p infinite
override IS_POWER: bool = false; // any other p, params.p

struct Params {
  batch: u32,
  rows: u32,
  columns: u32,
  depth: u32,
  p: f32,
}

@group(0) @binding(0) var<storage, read> a: array<A>;
@group(0) @binding(1) var<storage, read> b: array<B>;
@group(0) @binding(2) var<storage, read_write> out: array<R>;
@group(0) @binding(3) var<uniform> params: Params;

fn take(apart: f32) -> f32 {
  @if(IS_COUNT) return select(1.0, 0.0, apart == 0.0);
  @elif(IS_SUM || IS_LARGEST) return apart;
  @elif(IS_POWER) return power(apart, params.p);
  @else return apart * apart;
}

fn merge(total: f32, next: f32) -> f32 {
  @if(IS_LARGEST) return select(select(total, next, next > total || is_nan(next)), total, is_nan(total));
  @else return total + next;
}

fn finish(total: f32) -> f32 {
  @if(IS_COUNT || IS_SUM || IS_LARGEST) return total;
  @elif(IS_POWER) return power(total, 1.0 / params.p);
  @else return sqrt(total);
}

@compute @workgroup_size(WORKGROUP)
fn main(@builtin(global_invocation_id) id: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>) {
  let i = flat_index(id, groups);
  let n = i % params.columns;
  let m = i / params.columns % params.rows;
  let z = i / params.columns / params.rows;
  if (z >= params.batch) { return; }
  let a_first = (z * params.rows + m) * params.depth;
  let b_first = (z * params.columns + n) * params.depth;
  var total = 0.0;
  for (var k = 0u; k < params.depth; k++) {
    total = merge(total, take(abs(f32(a[a_first + k]) - f32(b[b_first + k]))));
  }
  out[i] = R(finish(total));
}
