import super::nan::{is_nan};
// The hyperbolic tangent, to a few units in the last place: near zero too, where drivers cancel.
fn tanh_of(x: f32) -> f32 {
  if (is_nan(x)) { return x; }
  if (abs(x) > 0.625) {
    let large = 1.0 - 2.0 / (exp(2.0 * min(abs(x), 10.0)) + 1.0);
    return select(large, -large, x < 0.0);
  }
  let z = x * x;
  var p = -0.00570498872745;
  p = p * z + 0.0206390887954;
  p = p * z - 0.0537397155531;
  p = p * z + 0.133314422036;
  p = p * z - 0.333332819422;
  return fma(p * z, x, x);
}
