// One step of a bitonic sort: of the indices `order[row]`, whose places are a power of two, each pair that is
// `distance` apart is put in order, ascending or descending by its block. Indices from `length` on fill the row up,
// and come last. One invocation handles one pair. The first step writes the indices themselves.
import package::wgsl::lib::index::{flat_index};
import super::lib::precedes::{precedes};

alias X = f32;
alias T = f32; // what is compared
const WORKGROUP = 64u;
override FIRST: bool = false;

struct Params {
  count: u32, // pairs of all rows
  length: u32,
  stride: u32,
  places: u32, // per row
  block: u32, // places that are sorted after this round of steps
  distance: u32,
}

@group(0) @binding(0) var<storage, read> x: array<X>;
@group(0) @binding(1) var<storage, read_write> order: array<i32>;
@group(0) @binding(2) var<uniform> params: Params;

fn index_at(place: u32, in_row: u32) -> u32 {
  @if(FIRST) return in_row;
  @else return u32(order[place]);
}

@compute @workgroup_size(WORKGROUP)
fn main(@builtin(global_invocation_id) id: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>) {
  let i = flat_index(id, groups);
  if (i >= params.count) { return; }
  let row = i / (params.places / 2u);
  let pair = i % (params.places / 2u);
  let left = pair / params.distance * params.distance * 2u + pair % params.distance;
  let right = left + params.distance;
  let base = row / params.stride * params.stride * params.length + row % params.stride;
  let at = row * params.places;
  let k = index_at(at + left, left);
  let l = index_at(at + right, right);
  var swap = l < k; // of indices that fill up, the smaller comes first
  if (k < params.length && l < params.length) {
    swap = precedes(T(x[base + l * params.stride]), l, T(x[base + k * params.stride]), k);
  } else if (k < params.length) {
    swap = false;
  } else if (l < params.length) {
    swap = true;
  }
  let is_ascending = (left & params.block) == 0u;
  let is_swapped = swap == is_ascending;
  order[at + left] = i32(select(k, l, is_swapped));
  order[at + right] = i32(select(l, k, is_swapped));
}
