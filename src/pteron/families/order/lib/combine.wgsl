// What elements of type Lane come to together: two formulas, and what they may use.
import package::wgsl::lib::logarithm::{log1p_of};
import package::wgsl::lib::nan::{is_finite, is_nan, minus_infinity, nan};

fn combine(a: Lane, b: Lane) -> Lane;
// What changes nothing when it is combined.
fn neutral() -> Lane;

// The better of two numbers; a NaN is better than any.
fn larger_of(a: Lane, b: Lane) -> Lane { return select(select(b, a, a > b), a, is_nan(f32(a))); }
fn smaller_of(a: Lane, b: Lane) -> Lane { return select(select(b, a, a < b), a, is_nan(f32(a))); }

// The logarithm of a sum of exponentials; two infinities have no difference.
fn log_add(a: f32, b: f32) -> f32 {
  let sum = select(max(a, b) + log1p_of(exp(-abs(a - b))), max(a, b), !is_finite(a - b));
  return select(sum, nan(), is_nan(a) || is_nan(b));
}
