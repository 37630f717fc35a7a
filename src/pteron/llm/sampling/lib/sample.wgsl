// Finite logits, the repetition penalty, and the order of logits.
import package::wgsl::lib::nan::{LOWEST, is_nan};

// A token this many temperatures below the likeliest is never drawn: noise is between -3.9 and 45.1.
const REACH = 50.0;

// A finite number: infinities become the largest numbers, and NaN the lowest.
fn finite(value: f32) -> f32 { return select(clamp(value, LOWEST, -LOWEST), LOWEST, is_nan(value)); }

// Makes a token that was seen less likely by `penalty`.
fn penalised(value: f32, was_seen: bool, penalty: f32) -> f32 {
  let changed = select(value / penalty, value * penalty, value < 0.0);
  return finite(select(value, changed, was_seen));
}

// The place of a logit in the order of all numbers, the greatest first. Equal logits (0 and -0 too) share a place.
fn place(value: f32) -> u32 {
  let bits = bitcast<u32>(select(value, 0.0, value == 0.0));
  return select(~bits & 0x7fffffffu, bits, bits > 0x7fffffffu);
}
