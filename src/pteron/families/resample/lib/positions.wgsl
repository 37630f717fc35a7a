// Coordinates of a grid as indices along a dim, and what lies between two elements.
import package::wgsl::lib::math::{at_least, at_most};
import package::wgsl::lib::nan::{is_finite, nan};

// -1 and 1 are the centres of the first and last element, else their edges.
override ALIGNS_CORNERS: bool = false;
// What a position outside the elements reads: the nearest one, or one by reflection; else it reads zero.
override IS_BORDER: bool = false;
override IS_REFLECTED: bool = false;

// A coordinate as an index along a dim.
fn elements(coordinate: f32, size: f32) -> f32 {
  @if(ALIGNS_CORNERS) return (coordinate + 1.0) * 0.5 * (size - 1.0);
  @else return ((coordinate + 1.0) * size - 1.0) * 0.5;
}

// The index of a position outside the elements.
fn onto_plane(position: f32, size: f32) -> f32 {
  @if(IS_BORDER) return within(position, size);
  @elif(IS_REFLECTED && ALIGNS_CORNERS) return within(reflected(position, 0.0, size - 1.0), size);
  @elif(IS_REFLECTED) return within(reflected(position, -0.5, size), size);
  @else return position;
}

fn within(position: f32, size: f32) -> f32 { return at_most(at_least(position, 0.0), size - 1.0); }

// Reflected at `low` and `low + span` until it is between them.
fn reflected(position: f32, low: f32, span: f32) -> f32 {
  if (span == 0.0) { return low; }
  let far = abs(position - low);
  let rest = far - trunc(far / (2.0 * span)) * (2.0 * span);
  return select(nan(), min(rest, 2.0 * span - rest) + low, is_finite(position));
}

// A weighted sum keeps an infinity; `mix` may be compiled to a difference, which gives NaN.
fn weighted(a: f32, b: f32, part: f32) -> f32 { return (1.0 - part) * a + part * b; }
