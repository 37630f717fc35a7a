// The order of a sort. T is the type that is compared.
fn better(a: T, b: T) -> bool { return a < b; }
fn is_nan_first() -> bool { return false; }

// Whether element k, which is a, comes before element l, which is b: equal elements keep their order.
fn precedes(a: T, k: u32, b: T, l: u32) -> bool {
  let a_nan = is_nan(f32(a));
  let b_nan = is_nan(f32(b));
  if (a_nan || b_nan) {
    if (a_nan && b_nan) { return k < l; }
    return a_nan == is_nan_first();
  }
  return better(a, b) || (a == b && k < l);
}
