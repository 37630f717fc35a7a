//! loops: 8
//! extent x: batch * channels * depth * height * width
//! extent grid: 3 * batch * places
//! extent out: batch * channels * places
// out[n, c, place] = sample of the volume x[n, c] at the point grid[n, place]: a coordinate along the width, one along
// the height and one along the depth, from -1 to 1. One invocation computes one element. A NaN coordinate gives NaN;
// for "nearest" it gives the first element.
import package::wgsl::lib::index::{flat_index};
import package::wgsl::lib::nan::{is_finite, is_nan, nan};
import super::lib::positions::{elements, onto_plane, weighted};

alias X = f32;
alias G = f32;
alias R = f32;
const WORKGROUP = 64u;
override IS_NEAREST: bool = false;

struct Params {
  batch: u32,
  channels: u32,
  depth: u32,
  height: u32,
  width: u32,
  places: u32, // per sample
}

@group(0) @binding(0) var<storage, read> x: array<X>;
@group(0) @binding(1) var<storage, read> grid: array<G>;
@group(0) @binding(2) var<storage, read_write> out: array<R>;
@group(0) @binding(3) var<uniform> params: Params;

fn sizes() -> vec3<f32> { return vec3(f32(params.depth), f32(params.height), f32(params.width)); }

// An element of a volume, at (plane, row, column); zero outside.
fn element(volume: u32, at: vec3<f32>) -> f32 {
  let last = sizes() - 1.0;
  let inside = all(at >= vec3(0.0)) && all(at <= last);
  let place = vec3<u32>(clamp(at, vec3(0.0), last));
  let row = (volume * params.depth + place.x) * params.height + place.y;
  return select(0.0, f32(x[row * params.width + place.z]), inside);
}

fn onto(position: vec3<f32>) -> vec3<f32> {
  let size = sizes();
  return vec3(
    onto_plane(position.x, size.x),
    onto_plane(position.y, size.y),
    onto_plane(position.z, size.z),
  );
}

fn nearest(volume: u32, position: vec3<f32>) -> f32 {
  let at = onto(position);
  let whole = vec3(
    select(round(at.x), 0.0, is_nan(at.x)),
    select(round(at.y), 0.0, is_nan(at.y)),
    select(round(at.z), 0.0, is_nan(at.z)),
  );
  return element(volume, whole);
}

fn in_row(volume: u32, corner: vec3<f32>, part: f32) -> f32 {
  return weighted(element(volume, corner), element(volume, corner + vec3(0.0, 0.0, 1.0)), part);
}

fn in_plane(volume: u32, corner: vec3<f32>, part: vec3<f32>) -> f32 {
  return weighted(
    in_row(volume, corner, part.z),
    in_row(volume, corner + vec3(0.0, 1.0, 0.0), part.z),
    part.y,
  );
}

fn trilinear(volume: u32, position: vec3<f32>) -> f32 {
  let at = onto(position);
  if (!is_finite(at.x) || !is_finite(at.y) || !is_finite(at.z)) { return nan(); }
  let corner = floor(at);
  let part = at - corner;
  return weighted(
    in_plane(volume, corner, part),
    in_plane(volume, corner + vec3(1.0, 0.0, 0.0), part),
    part.x,
  );
}

fn sample(volume: u32, position: vec3<f32>) -> f32 {
  @if(IS_NEAREST) return nearest(volume, position);
  @else return trilinear(volume, position);
}

@compute @workgroup_size(WORKGROUP)
fn main(@builtin(global_invocation_id) id: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>) {
  let i = flat_index(id, groups);
  let volume = i / params.places;
  if (volume >= params.batch * params.channels) { return; }
  let at = 3u * (volume / params.channels * params.places + i % params.places);
  let position = vec3(
    elements(f32(grid[at + 2u]), f32(params.depth)),
    elements(f32(grid[at + 1u]), f32(params.height)),
    elements(f32(grid[at]), f32(params.width)),
  );
  out[i] = R(sample(volume, position));
}
