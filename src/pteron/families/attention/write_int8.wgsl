//! loops: 2 * 8
//! extent x: count // blocks * width
//! extent places: 2 * (count // (blocks * heads))
//! extent out: slots * capacity * heads * (width // 4 + blocks)
// Writes keys or values to a cache in 8 bits (int8.py): x = scale · code, with the scale max|x| / 127 of a block of 32
// elements of a head. One invocation writes one block: the scale, then a word of each four codes.
import package::wgsl::lib::index::{flat_index};
import package::wgsl::lib::row_of::{row_of};

alias X = f32;
const WORKGROUP = 64u;

struct Params {
  count: u32, // blocks of all rows and heads
  blocks: u32, // of a head
  heads: u32,
  width: u32, // elements of a head, a multiple of 4
  steps: u32, // rows of a slot that are written from `start` on, without places
  start: i32, // the position of the first of them
  slots: u32,
  capacity: u32, // rows of a slot
}

@group(0) @binding(0) var<storage, read> x: array<X>;
@group(0) @binding(1) var<storage, read> places: array<vec2<i32>>;
@group(0) @binding(2) var<storage, read_write> out: array<i32>;
@group(0) @binding(3) var<uniform> params: Params;

@compute @workgroup_size(WORKGROUP)
fn main(@builtin(global_invocation_id) id: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>) {
  let i = flat_index(id, groups);
  if (i >= params.count) { return; }
  let block = i % params.blocks;
  let head = i / params.blocks; // counted over rows
  let to_row = row_of(head / params.heads);
  if (to_row < 0) { return; }
  let from_element = head * params.width + 32u * block;
  let quads = min((params.width - 32u * block) / 4u, 8u);
  var most = vec4(0u); // as bits, which are ordered as the numbers are: NaN is the greatest
  for (var quad = 0u; quad < quads; quad++) { most = max(most, bitcast<vec4<u32>>(abs(four(from_element, quad)))); }
  let largest = bitcast<f32>(max(max(most.x, most.y), max(most.z, most.w)));
  let inverse = select(0.0, 127.0 / largest, largest > 1e-30);
  let words = params.width / 4u + params.blocks;
  let to = (u32(to_row) * params.heads + head % params.heads) * words + 9u * block;
  out[to] = bitcast<i32>(largest / 127.0);
  for (var quad = 0u; quad < quads; quad++) {
    out[to + 1u + quad] = i32(pack4xI8(vec4<i32>(round(four(from_element, quad) * inverse))));
  }
}

fn four(from_element: u32, quad: u32) -> vec4<f32> {
  let at = from_element + 4u * quad;
  return vec4(f32(x[at]), f32(x[at + 1u]), f32(x[at + 2u]), f32(x[at + 3u]));
}
