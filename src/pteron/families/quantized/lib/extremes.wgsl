//! use quotient
// The scale and the zero point by which a row becomes whole numbers from `low` to `high`, by its least element and
// its greatest, of which zero is one.
fn scale_between(least: f32, most: f32, low: f32, high: f32) -> f32 { return quotient(most - least, high - low); }

fn zero_between(least: f32, scale: f32, low: f32, high: f32) -> f32 {
  return clamp(low - round(quotient(least, scale)), low, high);
}
