//! use nan
// Logits as a sampler sees them, and their order.

// No token this many temperatures below the likeliest is ever drawn: noise is at least -3.9, at most 45.1.
const REACH = 50.0;

// A number for every logit: infinities become the outermost numbers, and a NaN the lowest.
fn finite(value: f32) -> f32 { return select(clamp(value, LOWEST, -LOWEST), LOWEST, is_nan(value)); }

// Tokens that were already there are made less likely by `penalty`.
fn penalised(value: f32, was_seen: bool, penalty: f32) -> f32 {
  let changed = select(value / penalty, value * penalty, value < 0.0);
  return finite(select(value, changed, was_seen));
}

// Where a logit stands in the order of all, the greatest first. Equal logits (0 and -0 too) share a place.
fn place(value: f32) -> u32 {
  let bits = bitcast<u32>(select(value, 0.0, value == 0.0));
  return select(~bits & 0x7fffffffu, bits, bits > 0x7fffffffu);
}
