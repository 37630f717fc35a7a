// The elements of cached values, four at a time, as lib/keys.wgsl has those of keys. `row` is where a head begins, in units
// of VALUE_UNIT elements.
import super::heads::{IS_INT8};

alias V = f32;
@if(IS_INT8) const VALUE_UNIT = 1u;
@else const VALUE_UNIT = 4u;

@if(IS_INT8) @group(0) @binding(2) var<storage, read> v: array<i32>;
@else @group(0) @binding(2) var<storage, read> v: array<vec4<V>>;

fn value_quad(row: u32, quad: u32) -> vec4<f32> {
  @if(IS_INT8) {
    let block = row + quad / 8u * 9u;
    return vec4<f32>(unpack4xI8(u32(v[block + 1u + quad % 8u]))) * bitcast<f32>(v[block]);
  }
  @else return vec4<f32>(v[row + quad]);
}

// The same as they are stored: f16 takes half of the registers.
@if(IS_INT8) alias ValueQuad = vec4<f32>;
@else alias ValueQuad = vec4<V>;

fn stored_value(row: u32, quad: u32) -> ValueQuad {
  @if(IS_INT8) return value_quad(row, quad);
  @else return v[row + quad];
}
