// NaNs and infinities by their bits: compilers may take floats for finite numbers, and then `x != x` is false
// for all of them.

const LOWEST = -3.4028234e38; // of the finite numbers

// Values, so that no compiler folds them: constants that are not numbers are errors.
fn nan() -> f32 {
  var bits = 0x7fc00000u;
  return bitcast<f32>(bits);
}
fn minus_infinity() -> f32 {
  var bits = 0xff800000u;
  return bitcast<f32>(bits);
}

fn is_nan(x: f32) -> bool { return (bitcast<u32>(x) & 0x7fffffffu) > 0x7f800000u; }
fn is_finite(x: f32) -> bool { return (bitcast<u32>(x) & 0x7f800000u) < 0x7f800000u; }
