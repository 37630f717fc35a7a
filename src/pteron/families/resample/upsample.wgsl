//! extent x: planes * height * width
//! extent out: planes * out_height * out_width
// out[plane, y, x] = x[plane] at (source(y), source(x)), interpolated between the four elements around it, or the element
// there (IS_NEAREST). One invocation computes one element.
import package::wgsl::lib::index::{flat_index};
@if(!IS_NEAREST) import super::lib::positions::{ALIGNS_CORNERS, weighted};

alias X = f32;
alias R = f32;
const WORKGROUP = 64u;
override IS_NEAREST: bool = false;

struct Params {
  planes: u32,
  height: u32,
  width: u32,
  out_height: u32,
  out_width: u32,
  step_height: f32,
  step_width: f32,
}

@group(0) @binding(0) var<storage, read> x: array<X>;
@group(0) @binding(1) var<storage, read_write> out: array<R>;
@group(0) @binding(2) var<uniform> params: Params;

@if(IS_NEAREST)
fn nearest(i: u32, step: f32, size: u32) -> u32 { return min(u32(f32(i) * step), size - 1u); }

fn source(i: u32, step: f32) -> f32 {
  @if(ALIGNS_CORNERS) return step * f32(i);
  @else return step * (f32(i) + 0.5) - 0.5;
}

// The two elements of a dim around a position, and the distance from the first.
struct Between {
  first: u32,
  second: u32,
  part: f32,
}

fn between(i: u32, step: f32, size: u32, out_size: u32) -> Between {
  if (size == out_size) { return Between(i, i, 0.0); }
  let inside = max(source(i, step), 0.0);
  let first = min(u32(inside), size - 1u);
  return Between(first, min(first + 1u, size - 1u), clamp(inside - f32(first), 0.0, 1.0));
}

@if(!IS_NEAREST)
fn in_row(plane: u32, row: u32, column: Between) -> f32 {
  let base = (plane * params.height + row) * params.width;
  return weighted(f32(x[base + column.first]), f32(x[base + column.second]), column.part);
}

@compute @workgroup_size(WORKGROUP)
fn main(@builtin(global_invocation_id) id: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>) {
  let i = flat_index(id, groups);
  let rows = i / params.out_width;
  let plane = rows / params.out_height;
  if (plane >= params.planes) { return; }
  @if(IS_NEAREST) {
    let row = nearest(rows % params.out_height, params.step_height, params.height);
    let column = nearest(i % params.out_width, params.step_width, params.width);
    out[i] = R(x[(plane * params.height + row) * params.width + column]);
  }
  @else {
    let row = between(rows % params.out_height, params.step_height, params.height, params.out_height);
    let column = between(i % params.out_width, params.step_width, params.width, params.out_width);
    out[i] = R(weighted(in_row(plane, row.first, column), in_row(plane, row.second, column), row.part));
  }
}
