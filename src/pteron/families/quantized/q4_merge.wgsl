//! loops: 2 * ceil(PARTS, BLOCK)
//! extent sums: PARTS * rows * columns
// Adds up the parts [part][m][n] of a product with 4-bit weights and runs the epilogue (lib/q4_result.wgsl). One
// invocation computes one output, gated if IS_GATED.
import package::wgsl::lib::index::{flat_index};
import super::lib::q4_params::{params};
import super::lib::q4_result::{OTHERS, PARTS, put_gated, store};

const WORKGROUP = 256u;
const BLOCK = 16u; // parts that are loaded at once
override IS_GATED: bool = false; // whether the first half of the columns is the gate of the second, which has OTHERS columns

@group(0) @binding(8) var<storage, read> sums: array<f32>;

fn total(m: u32, n: u32) -> f32 {
  let count = params.rows * params.columns;
  let at = m * params.columns + n;
  var total = 0.0;
  for (var first = 0u; first < PARTS; first += BLOCK) {
    var sum = 0.0;
    //! unroll
    for (var p = 0u; p < BLOCK; p++) {
      if (first + p < PARTS) { sum += sums[(first + p) * count + at]; }
    }
    total += sum;
  }
  return total;
}

@compute @workgroup_size(WORKGROUP)
fn main(@builtin(global_invocation_id) id: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>) {
  let i = flat_index(id, groups);
  let width = select(params.columns, OTHERS, IS_GATED);
  let m = i / width;
  let n = i % width;
  if (m >= params.rows) { return; }
  @if(IS_GATED) put_gated(m, n, total(m, n), total(m, n + OTHERS));
  @else store(0u, m, n, total(m, n));
}
