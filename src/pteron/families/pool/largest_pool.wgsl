//! loops: window_height * (window_width + 1)
//! extent x: planes * height * width
//! extent plane_indices: planes * height * width
//! extent out: planes * out_height * out_width
//! extent indices: planes * out_height * out_width
// out[plane, y, x] = the largest element in window (y, x), indices[plane, y, x] = its index in the plane. One
// invocation computes one output. Of equal elements the first counts. A NaN is the largest; of several the last
// counts. If x is pooled already along other dims, plane_indices has the index of each of its elements in its plane, or,
// if rows of x are planes (OF_PLANES), the index in its row.
import package::wgsl::lib::index::{flat_index};
import package::wgsl::lib::nan::{is_nan, minus_infinity};

alias X = f32;
alias R = f32;
alias I = i32;
const WORKGROUP = 64u;
override OF_PLANES: bool = false;

struct Params {
  planes: u32,
  height: u32,
  width: u32,
  out_height: u32,
  out_width: u32,
  window_height: u32,
  window_width: u32,
  stride_height: u32,
  stride_width: u32,
  padding_height: u32,
  padding_width: u32,
  dilation_height: u32,
  dilation_width: u32,
  plane: u32, // elements, where rows of x are planes
}

@group(0) @binding(0) var<storage, read> x: array<X>;
@group(0) @binding(1) var<storage, read> plane_indices: array<I>;
@group(0) @binding(2) var<storage, read_write> out: array<R>;
@group(0) @binding(3) var<storage, read_write> indices: array<I>;
@group(0) @binding(4) var<uniform> params: Params;

// The index of an element of x in its plane, or its volume; `base` is the first element of it.
fn index_in_plane(element: u32, base: u32) -> I {
  @if(OF_PLANES && plane_indices)
  return plane_indices[element] + I((element - base) / params.width) * I(params.plane);
  @elif(plane_indices) return plane_indices[element];
  @else return I(element - base);
}

@compute @workgroup_size(WORKGROUP)
fn main(@builtin(global_invocation_id) id: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>) {
  let i = flat_index(id, groups);
  let rows = i / params.out_width;
  let plane = rows / params.out_height;
  if (plane >= params.planes) { return; }
  let size = vec2(params.height, params.width);
  let padding = vec2(params.padding_height, params.padding_width);
  let dilation = vec2(params.dilation_height, params.dilation_width);
  let reach = (vec2(params.window_height, params.window_width) - 1u) * dilation + 1u;
  // Counted from the corner of the padded plane.
  let stride = vec2(params.stride_height, params.stride_width);
  let corner = vec2(rows % params.out_height, i % params.out_width) * stride;
  let skipped = (max(corner, padding) - corner + dilation - 1u) / dilation * dilation; // on padding
  let first = corner + skipped - padding;
  let end = min(corner + reach, size + padding) - padding;
  let base = plane * params.height * params.width;
  var best = minus_infinity();
  var found = base + first.x * params.width + first.y;
  for (var row = first.x; row < end.x; row += dilation.x) {
    for (var column = first.y; column < end.y; column += dilation.y) {
      let element = base + row * params.width + column;
      let value = f32(x[element]);
      if (value > best || is_nan(value)) {
        best = value;
        found = element;
      }
    }
  }
  out[i] = R(best);
  // A dilated window can miss a small plane.
  @if(indices) indices[i] = index_in_plane(min(found, base + params.height * params.width - 1u), base);
}
