//! loops: (parts + 1) * rank
//! extent y: rows * columns
//! extent down: parts * rows * rank
//! extent b: adapters * rank * columns
//! extent ranks: adapters
//! extent which: first + rows
//! extent out: rows * columns
// out[m, n] = y[m, n] + the sum over j of down[m, j] · b[which[m] - 1, j, n], where parts of `down` are added up
// first. A row whose adapter is 0 is copied. One invocation writes one element.
import package::wgsl::lib::index::{flat_index};

alias Y = f32;
alias O = f32;
const WORKGROUP = 64u;

struct Params {
  rows: u32,
  columns: u32,
  adapters: u32,
  rank: u32, // the highest
  first: u32, // of `which`
  parts: u32,
}

@group(0) @binding(0) var<storage, read> y: array<Y>;
@group(0) @binding(1) var<storage, read> down: array<f32>;
@group(0) @binding(2) var<storage, read> b: array<f32>;
@group(0) @binding(3) var<storage, read> ranks: array<i32>;
@group(0) @binding(4) var<storage, read> which: array<i32>;
@group(0) @binding(5) var<storage, read_write> out: array<O>;
@group(0) @binding(6) var<uniform> params: Params;

@compute @workgroup_size(WORKGROUP)
fn main(@builtin(global_invocation_id) id: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>) {
  let i = flat_index(id, groups);
  if (i >= params.rows * params.columns) { return; }
  let m = i / params.columns;
  let number = which[params.first + m];
  let adapter = u32(clamp(number, 1, i32(params.adapters))) - 1u;
  let rank = select(0u, min(u32(ranks[adapter]), params.rank), number > 0);
  var sum = 0.0;
  for (var j = 0u; j < rank; j++) {
    var factor = 0.0;
    for (var part = 0u; part < params.parts; part++) {
      factor += down[(part * params.rows + m) * params.rank + j];
    }
    sum += factor * b[(adapter * params.rank + j) * params.columns + i % params.columns];
  }
  out[i] = O(f32(y[i]) + sum);
}
