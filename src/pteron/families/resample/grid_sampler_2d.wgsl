//! loops: 4 + 16
//! extent x: batch * channels * height * width
//! extent grid: 2 * batch * places
//! extent out: batch * channels * places
// out[n, c, place] = sample of the plane x[n, c] at the point grid[n, place]: a coordinate along the width and one
// along the height, from -1 to 1. One invocation computes one element. A NaN coordinate gives NaN; for "nearest" it
// gives the first element.
import package::wgsl::lib::index::{flat_index};
import package::wgsl::lib::nan::{is_finite, is_nan, nan};
import super::lib::positions::{elements, onto_plane, weighted};

alias X = f32;
alias G = f32;
alias R = f32;
const WORKGROUP = 64u;
override IS_NEAREST: bool = false;
override IS_BICUBIC: bool = false;

struct Params {
  batch: u32,
  channels: u32,
  height: u32,
  width: u32,
  places: u32, // per sample
}

@group(0) @binding(0) var<storage, read> x: array<X>;
@group(0) @binding(1) var<storage, read> grid: array<G>;
@group(0) @binding(2) var<storage, read_write> out: array<R>;
@group(0) @binding(3) var<uniform> params: Params;

// An element of a plane; zero outside.
fn element(plane: u32, row: f32, column: f32) -> f32 {
  let last = vec2(f32(params.height), f32(params.width)) - 1.0;
  let inside = row >= 0.0 && row <= last.x && column >= 0.0 && column <= last.y;
  let at = vec2<u32>(clamp(vec2(row, column), vec2(0.0), last));
  return select(0.0, f32(x[(plane * params.height + at.x) * params.width + at.y]), inside);
}

fn onto(position: vec2<f32>) -> vec2<f32> {
  return vec2(onto_plane(position.x, f32(params.height)), onto_plane(position.y, f32(params.width)));
}

fn nearest(plane: u32, position: vec2<f32>) -> f32 {
  let at = onto(position);
  let row = select(round(at.x), 0.0, is_nan(at.x));
  let column = select(round(at.y), 0.0, is_nan(at.y));
  return element(plane, row, column);
}

fn bilinear(plane: u32, position: vec2<f32>) -> f32 {
  let at = onto(position);
  if (!is_finite(at.x) || !is_finite(at.y)) { return nan(); }
  let corner = floor(at);
  let part = at - corner;
  let next = corner + 1.0;
  let upper = weighted(element(plane, corner.x, corner.y), element(plane, corner.x, next.y), part.y);
  let lower = weighted(element(plane, next.x, corner.y), element(plane, next.x, next.y), part.y);
  return weighted(upper, lower, part.x);
}

// Weights of the four elements around a position that is `part` after the second, by cubic convolution with
// a = -0.75.
fn cubic(part: f32) -> vec4<f32> {
  let distance = vec4(part + 1.0, part, 1.0 - part, 2.0 - part);
  let near = (1.25 * distance - 2.25) * distance * distance + 1.0;
  let far = ((-0.75 * distance + 3.75) * distance - 6.0) * distance + 3.0;
  return vec4(far.x, near.y, near.z, far.w);
}

fn bicubic(plane: u32, position: vec2<f32>) -> f32 {
  if (!is_finite(position.x) || !is_finite(position.y)) { return nan(); }
  let corner = floor(position);
  let rows = cubic(position.x - corner.x);
  let columns = cubic(position.y - corner.y);
  var sum = 0.0;
  for (var i = 0u; i < 4u; i++) {
    var row_sum = 0.0;
    for (var j = 0u; j < 4u; j++) {
      let at = trunc(onto(corner + vec2(f32(i), f32(j)) - 1.0));
      row_sum += columns[j] * element(plane, at.x, at.y);
    }
    sum += rows[i] * row_sum;
  }
  return sum;
}

fn sample(plane: u32, position: vec2<f32>) -> f32 {
  @if(IS_NEAREST) return nearest(plane, position);
  @elif(IS_BICUBIC) return bicubic(plane, position);
  @else return bilinear(plane, position);
}

@compute @workgroup_size(WORKGROUP)
fn main(@builtin(global_invocation_id) id: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>) {
  let i = flat_index(id, groups);
  let plane = i / params.places;
  if (plane >= params.batch * params.channels) { return; }
  let at = 2u * (plane / params.channels * params.places + i % params.places);
  let position = vec2(
    elements(f32(grid[at + 1u]), f32(params.height)),
    elements(f32(grid[at]), f32(params.width)),
  );
  out[i] = R(sample(plane, position));
}
