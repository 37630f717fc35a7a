// What an index out of range picks: NaN, or zero of integers. X is the type of the elements.
import package::wgsl::lib::nan::{nan};

override IS_INTEGER: bool = false;

fn missing() -> X {
  @if(IS_INTEGER) return X();
  @else return X(nan());
}
