//! loops: ceil(span, LANES) + 8
// out[row, part] = the index k of the part's first best element, where a NaN is better than any number. A row's
// elements are `stride` apart; its candidates, at first all of them, are cut into `parts` of `span`. LANES
// invocations share a part.
import package::wgsl::lib::nan::{is_nan};
import package::wgsl::lib::rows::{LANES, WORKGROUP, row_index};

alias X = f32;
alias T = f32; // what is compared
alias R = i32;

struct Params {
  rows: u32,
  parts: u32, // per row
  count: u32, // candidates per row
  span: u32, // candidates per part
  length: u32, // elements per row
  stride: u32,
}

@group(0) @binding(0) var<storage, read> x: array<X>;
@group(0) @binding(1) var<storage, read> candidates: array<i32>;
@group(0) @binding(2) var<storage, read_write> out: array<R>;
@group(0) @binding(3) var<uniform> params: Params;

var<workgroup> values: array<T, WORKGROUP>;
var<workgroup> indices: array<u32, WORKGROUP>;

fn better(a: T, b: T) -> bool;

// The index in its row of the i-th candidate.
fn candidate(row: u32, i: u32) -> u32 {
  @if(candidates) return u32(candidates[row * params.count + i]);
  @else return i;
}

// Whether element k, which is a, comes before element l, which is b.
fn precedes(a: T, k: u32, b: T, l: u32) -> bool {
  let equal = a == b || (is_nan(f32(a)) && is_nan(f32(b)));
  if (equal) { return k < l; }
  return is_nan(f32(a)) || (!is_nan(f32(b)) && better(a, b));
}

@compute @workgroup_size(WORKGROUP)
fn main(
  @builtin(workgroup_id) group: vec3<u32>,
  @builtin(num_workgroups) groups: vec3<u32>,
  @builtin(local_invocation_index) local: u32,
) {
  let part = row_index(group, groups, local);
  let inside = part < params.rows * params.parts;
  let lane = local % LANES;
  let row = min(part / params.parts, params.rows - 1u);
  let first = part % params.parts * params.span;
  let end = select(0u, min(first + params.span, params.count), inside);
  let base = row / params.stride * params.stride * params.length + row % params.stride;
  var index = candidate(row, first);
  var best = T(x[base + index * params.stride]);
  for (var i = first + lane; i < end; i += LANES) {
    let k = candidate(row, i);
    let value = T(x[base + k * params.stride]);
    if (precedes(value, k, best, index)) {
      best = value;
      index = k;
    }
  }
  if (LANES > 1u) {
    values[local] = best;
    indices[local] = index;
    for (var step = LANES / 2u; step > 0u; step /= 2u) {
      workgroupBarrier();
      if (lane < step && precedes(values[local + step], indices[local + step], values[local], indices[local])) {
        values[local] = values[local + step];
        indices[local] = indices[local + step];
      }
    }
    index = indices[local]; // lane 0 reads what it wrote itself
  }
  if (inside && lane == 0u) { out[part] = R(index); }
}
