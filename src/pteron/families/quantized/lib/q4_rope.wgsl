//! extent q_out: rows * QUERIES
//! extent k_out: (rows // steps - 1) * out_stride + (RING or cache_start + steps) * KEYS
//! extent v_out: (rows // steps - 1) * out_stride + (RING or cache_start + steps) * KEYS
// Finishes sums over k whose columns are queries, keys and values: queries and keys are rotated (lib/q4_angles.wgsl),
// and keys and values are written to their caches, from step `cache_start` on. q4_digits.wgsl combines the two columns of a
// pair, which adjacent lanes hold.
import super::q4_params::{params};
import super::q4_angles::{HEAD_WIDTH, KEYS, QUERIES, ROTARY, RING, angle_base, first_angle, is_rotated, second_angle};

alias Q = f32;
alias KeyOut = f32;
alias ValueOut = f32;

@group(0) @binding(6) var<storage, read_write> q_out: array<Q>;
@group(0) @binding(21) var<storage, read_write> k_out: array<KeyOut>;
@group(0) @binding(22) var<storage, read_write> v_out: array<ValueOut>;

// The two columns of a pair. Pairs are numbered over all heads; in a head, rotated pairs come first, then the rest.
fn row_of_pair(pair: u32, second: u32) -> u32 {
  let pair_in_head = pair % (HEAD_WIDTH / 2u);
  let is_halved = HALVED && pair_in_head < ROTARY / 2u;
  let element = select(2u * pair_in_head + second, pair_in_head + second * (ROTARY / 2u), is_halved);
  return pair / (HEAD_WIDTH / 2u) * HEAD_WIDTH + element;
}

// The cosine of a column, and the sine (with sign) that the other column of its pair is multiplied by.
fn angle(m: u32, n: u32) -> vec2<f32> {
  if (!is_rotated(n)) { return vec2(1.0, 0.0); }
  let element = n % HEAD_WIDTH;
  let pair = select(element / 2u, element % (ROTARY / 2u), HALVED);
  let is_second = select(element % 2u == 1u, element >= ROTARY / 2u, HALVED);
  let base = angle_base(m, n);
  if (is_second) { return second_angle(base, pair); }
  return first_angle(base, pair) * vec2(1.0, -1.0);
}

fn put(m: u32, n: u32, value: f32) {
  if (n < QUERIES) {
    q_out[m * QUERIES + n] = Q(value);
    return;
  }
  var step = u32(params.cache_start) + m % params.steps;
  if (RING > 0u) { step %= max(RING, 1u); }
  let to = m / params.steps * params.out_stride + step * KEYS + n - QUERIES;
  if (n < QUERIES + KEYS) {
    k_out[to] = KeyOut(value);
  } else {
    v_out[to - KEYS] = ValueOut(value);
  }
}
