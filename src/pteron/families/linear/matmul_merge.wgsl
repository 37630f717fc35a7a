//! loops: PARTS + ceil(PARTS, BLOCK)
//! extent sums: PARTS * batch * rows * columns
// A matrix product (lib/matmul.wgsl) from the sums of its PARTS, laid out as [part][z][m][n]. One invocation finishes one
// output or, BY_QUADS, a quad of columns: then the parts are few, and are all loaded at once.
import package::wgsl::lib::index::{flat_index};
import super::lib::matmul::{params};
import super::lib::matmul_store::{BY_QUADS, UNIT, Value, store};

const WORKGROUP = 64u;
const BLOCK = 64u;
override PARTS: u32 = 2u;

@group(0) @binding(5) var<storage, read> sums: array<Value>;

@compute @workgroup_size(WORKGROUP)
fn main(@builtin(global_invocation_id) id: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>) {
  let i = flat_index(id, groups);
  let units = params.columns / UNIT;
  let count = params.batch * params.rows * units;
  if (i >= count) { return; }
  var total = Value();
  @if(BY_QUADS) {
    //! unroll
    for (var part = 0u; part < PARTS; part++) { total += sums[part * count + i]; }
  }
  @else for (var first = 0u; first < PARTS; first += BLOCK) {
    var sum = 0.0;
    for (var part = first; part < min(first + BLOCK, PARTS); part++) { sum += sums[part * count + i]; }
    total += sum;
  }
  store(i / units / params.rows, i / units % params.rows, i % units * UNIT, total);
}
