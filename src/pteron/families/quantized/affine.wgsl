//! loops: rank
//! extent x: count
//! extent scales: blocks
//! extent zero_points: blocks
//! extent out: count
// Numbers from quantised ones, out[i] = (x[i] - zero) · scale, or if QUANTIZES quantised ones from numbers,
// out[i] = clamp(round(x[i] · scale) + zero, low, high), scales being reciprocals: by the scale and the zero point of the
// block of an element. One invocation converts one element. Sizes and strides describe the walk over x and the blocks
// passed on it, merged to as few dims as possible.
import package::wgsl::lib::index::{flat_index};
import super::lib::rounded::{rounded};

alias X = f32;
alias S = f32;
alias Z = i32;
alias R = f32;
const WORKGROUP = 64u;
override QUANTIZES: bool = false;
override ROUNDS_LAST: bool = false; // quantises so that the zero point is added before rounding
override IS_WHOLE: bool = false; // subtracts zero points as integers

struct Params {
  count: u32,
  blocks: u32,
  rank: u32,
  scale: f32, // without `scales`: one number serves all blocks
  zero_point: f32,
  low: f32, // bounds of the quantised numbers
  high: f32,
  sizes: array<vec4<u32>, 4>,
  strides: array<vec4<u32>, 4>,
}

@group(0) @binding(0) var<storage, read> x: array<X>;
@group(0) @binding(1) var<storage, read> scales: array<S>;
@group(0) @binding(2) var<storage, read> zero_points: array<Z>;
@group(0) @binding(3) var<storage, read_write> out: array<R>;
@group(0) @binding(4) var<uniform> params: Params;

fn scale(block: u32) -> f32 {
  @if(scales) return f32(scales[block]);
  @else return params.scale;
}

fn zero(block: u32) -> f32 {
  @if(zero_points) return f32(zero_points[block]);
  @else return params.zero_point;
}

fn convert(value: X, block: u32) -> R {
  @if(QUANTIZES && ROUNDS_LAST)
    return R(clamp(round(rounded(f32(value) * scale(block)) + zero(block)), params.low, params.high));
  @elif(QUANTIZES) return R(clamp(round(f32(value) * scale(block)) + zero(block), params.low, params.high));
  @elif(IS_WHOLE) return R(f32(i32(value) - i32(zero_points[block])) * scale(block));
  @else return R((f32(value) - zero(block)) * scale(block));
}

@compute @workgroup_size(WORKGROUP)
fn main(@builtin(global_invocation_id) id: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>) {
  let i = flat_index(id, groups);
  if (i >= params.count) { return; }
  var rest = i;
  var block = 0u;
  for (var d = params.rank; d > 0u; d--) {
    let axis = d - 1u;
    let size = params.sizes[axis / 4u][axis % 4u];
    block += rest % size * params.strides[axis / 4u][axis % 4u];
    rest /= size;
  }
  out[i] = convert(x[i], block);
}
