//! loops: parts
//! extent sums: parts * batch * group_count * filters * out_height * out_width
// A convolution (lib/convolution.wgsl) from the sums of its parts. One invocation finishes one output or, BY_QUADS, four
// adjacent pixels, where planes of out are multiples of four.
import package::wgsl::lib::index::{flat_index};
import super::lib::convolution::{Pixel, params, result};
import super::lib::convolution_store::{BY_QUADS, Stored, Value, out};

const WORKGROUP = 64u;
@if(BY_QUADS) const UNIT = 4u; // pixels
@else const UNIT = 1u;

@group(0) @binding(5) var<storage, read> sums: array<Value>;

// The output at a place of a plane.
fn result_at(plane: u32, at: u32, sum: f32) -> f32 {
  let rows = params.group_count * params.filters;
  return result(Pixel(plane / rows, at / params.out_width, at % params.out_width), plane % rows, sum);
}

@compute @workgroup_size(WORKGROUP)
fn main(@builtin(global_invocation_id) id: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>) {
  let i = flat_index(id, groups);
  let units = params.out_height * params.out_width / UNIT; // of a plane
  let count = params.batch * params.group_count * params.filters * units;
  if (i >= count) { return; }
  var sum = Value();
  for (var part = 0u; part < params.parts; part++) { sum += sums[part * count + i]; }
  let plane = i / units;
  let at = i % units * UNIT;
  @if(BY_QUADS) {
    var results: vec4<f32>;
    //! unroll
    for (var p = 0u; p < 4u; p++) { results[p] = result_at(plane, at + p, sum[p]); }
    out[i] = Stored(results);
  }
  @else out[i] = Stored(result_at(plane, at, sum));
}
