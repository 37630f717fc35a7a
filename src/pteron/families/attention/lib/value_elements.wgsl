// The elements of cached values of any width, one at a time or four. `row` is where a head begins.
import super::heads::{IS_INT8};
@if(IS_INT8) import super::values::{v, value_quad};

@if(!IS_INT8) alias V = f32;
@if(!IS_INT8) @group(0) @binding(2) var<storage, read> v: array<V>;

fn value_element(row: u32, d: u32) -> f32 {
  @if(IS_INT8) {
    let block = row + d / 32u * 9u;
    return f32(extractBits(v[block + 1u + d % 32u / 4u], d % 4u * 8u, 8u)) * bitcast<f32>(v[block]);
  }
  @else return f32(v[row + d]);
}

// Four elements from d on, a multiple of four; those past the head are its last.
fn value_elements(row: u32, d: u32, width: u32) -> vec4<f32> {
  @if(IS_INT8) return value_quad(row, d / 4u);
  @else {
    let at = row + min(d + vec4(0u, 1u, 2u, 3u), vec4(width - 1u));
    return vec4(f32(v[at.x]), f32(v[at.y]), f32(v[at.z]), f32(v[at.w]));
  }
}
