//! loops: window_height * (window_width + 1)
//! extent x: planes * height * width
//! extent out: planes * out_height * out_width
// out[plane, y, x] = Σ of the elements in window (y, x) / divisor. One invocation computes one output, row by row of
// its window. Window positions are counted from the corner of the padded plane; padding adds nothing to a sum.
import package::wgsl::lib::index::{flat_index};

alias X = f32;
alias R = f32;
const WORKGROUP = 64u;
override HAS_DIVISOR: bool = false; // params.divisor, else the number of elements of the window
override COUNTS_PADDING: bool = false; // as elements of the window, which ends within it

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
  divisor: f32, // divisor_override, if given
}

@group(0) @binding(0) var<storage, read> x: array<X>;
@group(0) @binding(1) var<storage, read_write> out: array<R>;
@group(0) @binding(2) var<uniform> params: Params;

fn divisor(padded: u32, inside: u32) -> f32 {
  @if(HAS_DIVISOR) return params.divisor;
  @elif(COUNTS_PADDING) return f32(padded);
  @else return f32(inside);
}

@compute @workgroup_size(WORKGROUP)
fn main(@builtin(global_invocation_id) id: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>) {
  let i = flat_index(id, groups);
  let rows = i / params.out_width;
  let plane = rows / params.out_height;
  if (plane >= params.planes) { return; }
  let size = vec2(params.height, params.width);
  let padding = vec2(params.padding_height, params.padding_width);
  let stride = vec2(params.stride_height, params.stride_width);
  let corner = vec2(rows % params.out_height, i % params.out_width) * stride;
  let opposite = corner + vec2(params.window_height, params.window_width);
  let first = max(corner, padding) - padding;
  let end = max(min(opposite, size + padding), padding) - padding;
  var sum = 0.0;
  for (var row = first.x; row < end.x; row++) {
    let base = (plane * params.height + row) * params.width;
    var row_sum = 0.0;
    for (var column = first.y; column < end.y; column++) { row_sum += f32(x[base + column]); }
    sum += row_sum;
  }
  let padded = min(opposite, size + 2u * padding) - corner;
  let inside = max(end, first) - first;
  out[i] = R(sum / divisor(padded.x * padded.y, inside.x * inside.y));
}
