// NaNs by their bits: compilers may take floats for numbers, and then `x != x` is false for all of them.

// A value, so that no compiler folds it: constant NaNs are errors.
fn nan() -> f32 {
  var bits = 0x7fc00000u;
  return bitcast<f32>(bits);
}

fn is_nan(x: f32) -> bool { return (bitcast<u32>(x) & 0x7fffffffu) > 0x7f800000u; }
