//! use index
//! use math
//! extent a: count
//! extent b: count
//! extent out: count
// out[i] = combine(a[i], b[i]) where all three have one shape. One invocation computes one element, in T
// whatever the stored types are.
alias A = f32;
alias B = f32;
alias T = f32;
alias R = f32;
const WORKGROUP = 64u;

struct Params {
  count: u32,
  alpha: f32,
}

@group(0) @binding(0) var<storage, read> a: array<A>;
@group(0) @binding(1) var<storage, read> b: array<B>;
@group(0) @binding(2) var<storage, read_write> out: array<R>;
@group(0) @binding(3) var<uniform> params: Params;

fn combine(a: T, b: T) -> R { return R(a + b); }

@compute @workgroup_size(WORKGROUP)
fn main(@builtin(global_invocation_id) id: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>) {
  let i = flat_index(id, groups);
  if (i >= params.count) { return; }
  out[i] = combine(T(a[i]), T(b[i]));
}
