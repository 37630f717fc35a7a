// The elements of cached keys, four at a time. `row` is where a head begins, in units of KEY_UNIT elements: k_strides, which
// count elements or 8-bit caches' words (lib/heads.wgsl), divided by it.
import super::heads::{IS_INT8};

alias K = f32;
@if(IS_INT8) const KEY_UNIT = 1u;
@else const KEY_UNIT = 4u;

@if(IS_INT8) @group(0) @binding(1) var<storage, read> k: array<i32>;
@else @group(0) @binding(1) var<storage, read> k: array<vec4<K>>;

fn key_quad(row: u32, quad: u32) -> vec4<f32> {
  @if(IS_INT8) {
    let block = row + quad / 8u * 9u;
    return vec4<f32>(unpack4xI8(u32(k[block + 1u + quad % 8u]))) * bitcast<f32>(k[block]);
  }
  @else return vec4<f32>(k[row + quad]);
}

// The same as they are stored: f16 takes half of the registers.
@if(IS_INT8) alias KeyQuad = vec4<f32>;
@else alias KeyQuad = vec4<K>;

fn stored_key(row: u32, quad: u32) -> KeyQuad {
  @if(IS_INT8) return key_quad(row, quad);
  @else return k[row + quad];
}
