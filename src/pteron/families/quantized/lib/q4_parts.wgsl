//! loops: 2 * ceil(PARTS, BLOCK)
//! extent sums: PARTS * rows * columns
// A product from the sums of its parts, laid out as [part][m][n]: one column or, BY_QUADS, four adjacent ones. Then the parts
// are few, and are all loaded at once.
import super::q4_params::{params};
import super::q4_result::{BY_QUADS, OTHERS, PARTS, UNIT, Value, gated, result};

const BLOCK = 16u; // parts that are loaded at once
override IS_GATED: bool = false; // whether the first half of the columns is a gate for the second: OTHERS

@group(0) @binding(8) var<storage, read> sums: array<Value>;

fn total(m: u32, n: u32) -> Value {
  let count = params.rows * params.columns / UNIT;
  let at = (m * params.columns + n) / UNIT;
  var total = Value();
  @if(BY_QUADS) {
    //! unroll
    for (var part = 0u; part < PARTS; part++) { total += sums[part * count + at]; }
  }
  @else for (var first = 0u; first < PARTS; first += BLOCK) {
    var sum = 0.0;
    //! unroll
    for (var p = 0u; p < BLOCK; p++) {
      if (first + p < PARTS) { sum += sums[(first + p) * count + at]; }
    }
    total += sum;
  }
  return total;
}

fn sum_parts(m: u32, n: u32) -> Value {
  @if(IS_GATED) return gated(m, n, total(m, n), total(m, n + OTHERS));
  @else return result(m, n, total(m, n));
}
