//! loops: 32
//! extent sequence: rows * length
//! extent values: count
//! extent out: count
// out[i] = how many elements of a sorted row come before values[i]: those that are less, or not greater. The values
// are cut into equal parts, one per row; a single row serves all of them. One invocation searches for one value, by
// halving the row. A NaN comes after all numbers.
import package::wgsl::lib::index::{flat_index};
import package::wgsl::lib::nan::{is_nan};

alias S = f32;
alias X = f32;
alias R = i32;
alias T = f32; // what is compared
const WORKGROUP = 64u;
override AFTER_EQUAL: bool = false; // elements that are not greater come before, not only those that are less

struct Params {
  count: u32,
  rows: u32,
  length: u32, // elements per row
}

@group(0) @binding(0) var<storage, read> sequence: array<S>;
@group(0) @binding(1) var<storage, read> values: array<X>;
@group(0) @binding(2) var<storage, read_write> out: array<R>;
@group(0) @binding(3) var<uniform> params: Params;

fn stops(element: T, value: T) -> bool {
  @if(AFTER_EQUAL) return element > value;
  @else return element >= value;
}

@compute @workgroup_size(WORKGROUP)
fn main(@builtin(global_invocation_id) id: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>) {
  let i = flat_index(id, groups);
  if (i >= params.count) { return; }
  let value = T(values[i]);
  let base = i / (params.count / params.rows) * params.length;
  var first = 0u;
  var end = params.length;
  while (first < end) {
    let middle = first + (end - first) / 2u;
    let element = T(sequence[base + middle]);
    let is_open = is_nan(f32(element)) || is_nan(f32(value));
    if (!is_open && stops(element, value)) { end = middle; } else { first = middle + 1u; }
  }
  out[i] = R(first);
}
