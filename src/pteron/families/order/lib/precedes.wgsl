// The order of a sort. T is the type that is compared.
import package::wgsl::lib::nan::{is_nan};

override DESCENDING: bool = false; // a NaN comes first then, else last

fn better(a: T, b: T) -> bool {
  @if(DESCENDING) return a > b;
  @else return a < b;
}

// Whether element k, which is a, comes before element l, which is b: equal elements keep their order.
fn precedes(a: T, k: u32, b: T, l: u32) -> bool {
  let a_nan = is_nan(f32(a));
  let b_nan = is_nan(f32(b));
  if (a_nan || b_nan) {
    if (a_nan && b_nan) { return k < l; }
    return a_nan == DESCENDING;
  }
  return better(a, b) || (a == b && k < l);
}
