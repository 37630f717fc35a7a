//! use rows
//! use extremes
//! loops: ceil(span, LANES) + 16
// The affine parameters of each row: with m and M its least and greatest element, zero included,
// scale = max(scale_of(m, M), eps), zero = zero_of(m, M, scale). LANES invocations share a row, or one of the `parts`
// of `span` elements that a long row is split into: then `conclude` writes the part's m and M, which
// another launch reads instead of its elements.
alias X = f32;
alias S = f32;
alias Z = i32;
alias E = f32;

struct Params {
  rows: u32,
  parts: u32, // per row
  length: u32, // elements per row
  span: u32, // elements per part
  low: f32,
  high: f32,
  eps: f32,
}

@group(0) @binding(0) var<storage, read> x: array<X>;
@group(0) @binding(1) var<storage, read_write> scale: array<S>;
@group(0) @binding(2) var<storage, read_write> zero_point: array<Z>;
@group(0) @binding(3) var<storage, read_write> extremes: array<E>;
@group(0) @binding(4) var<uniform> params: Params;

fn scale_of(least: f32, most: f32) -> f32 { return scale_between(least, most, params.low, params.high); }
fn zero_of(least: f32, most: f32, step: f32) -> f32 {
  return zero_between(least, step, params.low, params.high);
}

fn conclude(part: u32, least: f32, most: f32) {
  let step = max(scale_of(least, most), params.eps);
  scale[part] = S(step);
  zero_point[part] = Z(zero_of(least, most, step));
}

@compute @workgroup_size(WORKGROUP)
fn main(
  @builtin(workgroup_id) group: vec3<u32>,
  @builtin(num_workgroups) groups: vec3<u32>,
  @builtin(local_invocation_index) local: u32,
) {
  let part = row_index(group, groups, local);
  let lane = local % LANES;
  let inside = part < params.rows * params.parts;
  let base = part / params.parts * params.length;
  let first = part % params.parts * params.span;
  let end = select(0u, min(first + params.span, params.length), inside);
  var most = 0.0;
  var least = 0.0;
  for (var k = first + lane; k < end; k += LANES) {
    let value = f32(x[base + k]);
    most = max(most, value);
    least = min(least, value);
  }
  most = row_max(most, local);
  least = -row_max(-least, local);
  if (inside && lane == 0u) { conclude(part, least, most); }
}
