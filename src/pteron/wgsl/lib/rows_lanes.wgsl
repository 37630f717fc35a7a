import super::nan::{is_nan};
// Rows that several invocations share: LANES of them per row, ROWS rows per workgroup. With one lane
// nothing is shared and there are no barriers, which is fastest on software adapters. Merging a row's lanes takes
// log2(LANES) iterations: 8 of 256 lanes.
alias Lane = f32; // what is merged
override LANES: u32 = 1u;
override ROWS: u32 = 64u;
const WORKGROUP = LANES * ROWS;

var<workgroup> row_values: array<Lane, WORKGROUP>;

// The row of an invocation; `local` is its index in the workgroup.
fn row_index(group: vec3<u32>, groups: vec3<u32>, local: u32) -> u32 {
  return (group.x + group.y * groups.x) * ROWS + local / LANES;
}

// The sum of `value` over a row's lanes, given to all of them.
fn row_sum(value: Lane, local: u32) -> Lane {
  if (LANES == 1u) { return value; }
  row_values[local] = value;
  for (var step = LANES / 2u; step > 0u; step /= 2u) {
    workgroupBarrier();
    if (local % LANES < step) { row_values[local] += row_values[local + step]; }
  }
  workgroupBarrier();
  let total = row_values[local - local % LANES];
  workgroupBarrier();
  return total;
}

// The largest `value` over a row's lanes, given to all of them; a NaN stays one.
fn row_max(value: Lane, local: u32) -> Lane {
  if (LANES == 1u) { return value; }
  row_values[local] = value;
  for (var step = LANES / 2u; step > 0u; step /= 2u) {
    workgroupBarrier();
    if (local % LANES < step) { row_values[local] = larger(row_values[local], row_values[local + step]); }
  }
  workgroupBarrier();
  let most = row_values[local - local % LANES];
  workgroupBarrier();
  return most;
}

fn larger(a: Lane, b: Lane) -> Lane { return select(select(b, a, a > b), a, is_nan(f32(a))); }

// The product of `value` over a row's lanes, given to all of them.
fn row_product(value: Lane, local: u32) -> Lane {
  if (LANES == 1u) { return value; }
  row_values[local] = value;
  for (var step = LANES / 2u; step > 0u; step /= 2u) {
    workgroupBarrier();
    if (local % LANES < step) { row_values[local] *= row_values[local + step]; }
  }
  workgroupBarrier();
  let total = row_values[local - local % LANES];
  workgroupBarrier();
  return total;
}
