//! loops: ceil(span, LANES) + 16
// The affine parameters of each row: with m and M its least and greatest element, zero included,
// scale = max(scale_of(m, M), eps), zero = zero_of(m, M, scale). LANES invocations share a row, or one of the `parts`
// of `span` elements that a long row is split into: then m and M of the part are written to `extremes`, which
// another launch reads instead of its elements.
import package::wgsl::lib::rows::{LANES, WORKGROUP, row_index, row_max};
import super::lib::extremes::{scale_between, zero_between};
import super::lib::quotient::{quotient};

override IS_SYMMETRIC: bool = false; // zero is mapped to the middle of the range
override CLIPS_NOTHING: bool = false; // so that both m and M are in the range
override IS_NEARER_END: bool = false; // the zero point is found from the end of the range where its error is smaller

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

fn scale_of(least: f32, most: f32) -> f32 {
  @if(CLIPS_NOTHING) return max(quotient(least, params.low), quotient(most, params.high));
  @elif(IS_SYMMETRIC) return quotient(max(-least, most), (params.high - params.low) / 2.0);
  @else return scale_between(least, most, params.low, params.high);
}

fn zero_of(least: f32, most: f32, step: f32) -> f32 {
  @if(IS_SYMMETRIC) return trunc((params.high + params.low + 1.0) / 2.0);
  @elif(IS_NEARER_END) {
    let low = quotient(least, step);
    let high = quotient(most, step);
    let from_low = (params.low + low) + (params.high + high) > 0.0;
    return round(clamp(select(params.high - high, params.low - low, from_low), params.low, params.high));
  }
  @else return zero_between(least, step, params.low, params.high);
}

fn conclude(part: u32, least: f32, most: f32) {
  @if(extremes) {
    extremes[2u * part] = E(least);
    extremes[2u * part + 1u] = E(most);
  }
  @else {
    let step = max(scale_of(least, most), params.eps);
    scale[part] = S(step);
    zero_point[part] = Z(zero_of(least, most, step));
  }
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
