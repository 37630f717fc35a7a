// The scale by which a row becomes whole numbers from `low` to `high`, and its zero point, by its least element
// and its greatest: zero is one of them.
import super::quotient::{quotient};

fn scale_between(least: f32, most: f32, low: f32, high: f32) -> f32 { return quotient(most - least, high - low); }

fn zero_between(least: f32, step: f32, low: f32, high: f32) -> f32 {
  return clamp(low - round(quotient(least, step)), low, high);
}
