// Rows that several invocations share: LANES of them per row, ROWS rows per workgroup.
//
// With one lane nothing is shared and there are no barriers, which is fastest on software adapters. More lanes are merged
// in workgroup memory, in log2(LANES) iterations: 8 for 256 lanes. On devices whose subgroups have one width, a subgroup
// merges without a barrier (BY_SUBGROUPS), and only rows wider than one pass through workgroup memory.
import super::nan::{is_nan, nan};

override BY_SUBGROUPS: bool = false;
override SUBGROUP: u32 = 32u; // the width, which divides LANES if BY_SUBGROUPS
override LANES: u32 = 1u;
override ROWS: u32 = 64u;
const WORKGROUP = LANES * ROWS;
const SUBGROUPS = LANES / SUBGROUP; // per row

alias Lane = f32; // what is merged

@if(BY_SUBGROUPS) var<workgroup> row_values: array<Lane, WORKGROUP / SUBGROUP>;
@else var<workgroup> row_values: array<Lane, WORKGROUP>;

// The row of an invocation; `local` is its index in the workgroup.
fn row_index(group: vec3<u32>, groups: vec3<u32>, local: u32) -> u32 {
  return (group.x + group.y * groups.x) * ROWS + local / LANES;
}

// What `value` adds up to over a row's lanes, given to all of them; their product; and the largest, where a NaN stays one.
fn row_sum(value: Lane, local: u32) -> Lane {
  @if(BY_SUBGROUPS) return over_row(subgroupAdd(value), local, SUM);
  @else return over_row(value, local, SUM);
}

fn row_product(value: Lane, local: u32) -> Lane {
  @if(BY_SUBGROUPS) return over_row(subgroupMul(value), local, PRODUCT);
  @else return over_row(value, local, PRODUCT);
}

fn row_max(value: Lane, local: u32) -> Lane {
  @if(BY_SUBGROUPS) {
    let most = select(subgroupMax(value), Lane(nan()), subgroupAny(is_nan(f32(value))));
    return over_row(most, local, LARGEST);
  }
  @else return over_row(value, local, LARGEST);
}

// How two values become one.
const SUM = 0u;
const PRODUCT = 1u;
const LARGEST = 2u;

fn combined(a: Lane, b: Lane, how: u32) -> Lane {
  if (how == SUM) { return a + b; }
  if (how == PRODUCT) { return a * b; }
  return larger(a, b);
}

fn larger(a: Lane, b: Lane) -> Lane { return select(select(b, a, a > b), a, is_nan(f32(a))); }

// The values of a row's subgroups, or of its lanes, as one.
@if(BY_SUBGROUPS)
fn over_row(part: Lane, local: u32, how: u32) -> Lane {
  if (SUBGROUPS == 1u) { return part; }
  if (local % SUBGROUP == 0u) { row_values[local / SUBGROUP] = part; }
  workgroupBarrier();
  let first = local / LANES * SUBGROUPS;
  var total = row_values[first];
  for (var i = 1u; i < SUBGROUPS; i++) { total = combined(total, row_values[first + i], how); }
  workgroupBarrier();
  return total;
}
@else
fn over_row(part: Lane, local: u32, how: u32) -> Lane {
  if (LANES == 1u) { return part; }
  row_values[local] = part;
  for (var step = LANES / 2u; step > 0u; step /= 2u) {
    workgroupBarrier();
    if (local % LANES < step) { row_values[local] = combined(row_values[local], row_values[local + step], how); }
  }
  workgroupBarrier();
  let total = row_values[local - local % LANES];
  workgroupBarrier();
  return total;
}
