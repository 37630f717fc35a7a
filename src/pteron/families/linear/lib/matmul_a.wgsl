//! extent a: ceil(batch, SHARE) * rows * depth
// The first factor of a matrix product (lib/matmul.wgsl), one by one or by quads. SHARE products of one row each have the
// same row of a.
import super::matmul::{IS_WHOLE, params};

alias A = f32;
override A_ALONG: bool = true; // k runs fastest; or m does, in the only matrix
override A_QUADS: bool = false; // k runs fastest, and its number is a multiple of four: a quad is one load
override SHARE: u32 = 1u;

@if(A_QUADS) @group(0) @binding(0) var<storage, read> a: array<vec4<A>>;
@else @group(0) @binding(0) var<storage, read> a: array<A>;

@if(!A_QUADS)
fn load_a(z: u32, m: u32, k: u32) -> f32 {
  let along = (z / SHARE * params.rows + m) * params.depth + k;
  return f32(a[select(k * params.rows + m, along, A_ALONG)]);
}

// Zero past the last k. Past the last m, the last.
@if(!A_QUADS)
fn element_of_a(z: u32, m: u32, k: u32) -> f32 {
  let value = load_a(z, min(m, params.rows - 1u), min(k, params.depth - 1u));
  return select(0.0, value, k < params.depth);
}

// The same for four k or, if m runs fastest, four m.
fn quad_of_a(z: u32, m: u32, k: u32) -> vec4<f32> {
  @if(A_QUADS) {
    let row = (z * params.rows + min(m, params.rows - 1u)) * params.depth;
    if (IS_WHOLE) { return vec4<f32>(a[(row + k) / 4u]); }
    return select(vec4(0.0), vec4<f32>(a[(row + min(k, params.depth - 4u)) / 4u]), k < params.depth);
  }
  @else {
    let next = select(vec2(1u, 0u), vec2(0u, 1u), A_ALONG);
    return vec4(
      element_of_a(z, m, k),
      element_of_a(z, m + next.x, k + next.y),
      element_of_a(z, m + 2u * next.x, k + 2u * next.y),
      element_of_a(z, m + 3u * next.x, k + 3u * next.y),
    );
  }
}
