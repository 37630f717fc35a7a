import super::nan::{is_nan, nan};
// Rows that several invocations share, as in rows_lanes.wgsl, for devices whose subgroups have one width: a
// subgroup adds up without a barrier, and only rows wider than one pass through workgroup memory.
alias Lane = f32; // what is merged
const SUBGROUP = 32u; // the width
override LANES: u32 = 32u; // a multiple of it
override ROWS: u32 = 2u;
const WORKGROUP = LANES * ROWS;
const SUBGROUPS = LANES / SUBGROUP; // per row

var<workgroup> row_values: array<Lane, WORKGROUP / SUBGROUP>;

// The row of an invocation; `local` is its index in the workgroup.
fn row_index(group: vec3<u32>, groups: vec3<u32>, local: u32) -> u32 {
  return (group.x + group.y * groups.x) * ROWS + local / LANES;
}

// The sum of `value` over a row's lanes, given to all of them.
fn row_sum(value: Lane, local: u32) -> Lane {
  let part = subgroupAdd(value);
  if (SUBGROUPS == 1u) { return part; }
  if (local % SUBGROUP == 0u) { row_values[local / SUBGROUP] = part; }
  workgroupBarrier();
  let first = local / LANES * SUBGROUPS;
  var total = row_values[first];
  for (var i = 1u; i < SUBGROUPS; i++) { total += row_values[first + i]; }
  workgroupBarrier();
  return total;
}

// The largest `value` over a row's lanes, given to all of them; a NaN stays one.
fn row_max(value: Lane, local: u32) -> Lane {
  let part = select(subgroupMax(value), Lane(nan()), subgroupAny(is_nan(f32(value))));
  if (SUBGROUPS == 1u) { return part; }
  if (local % SUBGROUP == 0u) { row_values[local / SUBGROUP] = part; }
  workgroupBarrier();
  let first = local / LANES * SUBGROUPS;
  var most = row_values[first];
  for (var i = 1u; i < SUBGROUPS; i++) { most = larger(most, row_values[first + i]); }
  workgroupBarrier();
  return most;
}

fn larger(a: Lane, b: Lane) -> Lane { return select(select(b, a, a > b), a, is_nan(f32(a))); }

// The product of `value` over a row's lanes, given to all of them.
fn row_product(value: Lane, local: u32) -> Lane {
  let part = subgroupMul(value);
  if (SUBGROUPS == 1u) { return part; }
  if (local % SUBGROUP == 0u) { row_values[local / SUBGROUP] = part; }
  workgroupBarrier();
  let first = local / LANES * SUBGROUPS;
  var total = row_values[first];
  for (var i = 1u; i < SUBGROUPS; i++) { total *= row_values[first + i]; }
  workgroupBarrier();
  return total;
}
