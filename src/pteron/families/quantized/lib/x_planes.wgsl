//! extent gain: 4 * QUADS
//! extent x: 4 * ceil(rows, SHARE) * QUADS
// ROWS rows of x in workgroup memory, as integers: PLANES planes of int8, and for each chunk of 32 elements the
// initial value of its sums and its unit. A chunk of a plane is two vec4s, its words in the order of the weights'
// (`in_order`).
// Rows are QUADS vec4s long in global memory and CELLS chunks in workgroup memory, padded with zeros. An invocation
// loads eight elements at a time (an octet), four invocations a chunk. ROWS, QUADS, CELLS and EACH are the kernel's;
// PLANES is that of lib/planes.wgsl or lib/planes_int8.wgsl, which convert the rows.
import super::experts::{KEPT, shares, x_row};
import super::q4_result::{X};
@if(parts) import super::x_source_splits::{load_pair};

alias G = f32;

@group(0) @binding(8) var<storage, read> gain: array<vec4<G>>;

var<workgroup> planes: array<vec4<u32>, ROWS * 2u * PLANES * CELLS>;
// For each chunk: the value that its sum starts with, and its unit (bits of an f32): what an integer of 1 means.
var<workgroup> units: array<vec2<u32>, ROWS * CELLS>;

// Multiplies x by the gain of a norm or by the shares of experts, if there are any.
fn weighted(m: u32, quad: u32, value: vec4<f32>) -> vec4<f32> {
  @if(gain) return value * vec4<f32>(gain[min(quad, QUADS - 1u)]);
  @elif(shares) return value * f32(shares[m * KEPT + min(quad / (8u * EACH), KEPT - 1u)]);
  @else return value;
}

@if(!parts) @group(0) @binding(0) var<storage, read> x: array<vec4<X>>;

// Two vec4s of a row, neighbours or the last one twice.
@if(!parts)
fn load_pair(m: u32, quads: vec2<u32>) -> mat2x4<f32> {
  let first = x_row(m) * QUADS;
  return mat2x4(vec4<f32>(x[first + quads.x]), vec4<f32>(x[first + quads.y]));
}

// Elements 8 · octet to 8 · octet + 7 of row m, zeros past its end.
fn load(m: u32, octet: u32) -> mat2x4<f32> {
  let quads = vec2(2u * octet, 2u * octet + 1u);
  let found = load_pair(m, min(quads, vec2(QUADS - 1u)));
  return mat2x4(select(vec4(0.0), found[0], quads.x < QUADS), select(vec4(0.0), found[1], quads.y < QUADS));
}

// The sum over the four invocations that share a chunk.
fn chunk_total(value: u32) -> u32 {
  let pair = value + subgroupShuffleXor(value, 1u);
  return pair + subgroupShuffleXor(pair, 2u);
}

// Stores one plane of eight elements: two words.
fn put_plane(m: u32, plane: u32, octet: u32, first: u32, second: u32) {
  let at = ((m * PLANES + plane) * 2u + octet / 2u % 2u) * CELLS + octet / 4u;
  planes[at][octet % 2u * 2u] = first;
  planes[at][octet % 2u * 2u + 1u] = second;
}
