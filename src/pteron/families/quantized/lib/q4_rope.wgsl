//! extent q_out: rows * QUERIES
//! extent k_out: (rows // steps - 1) * out_stride + (RING or cache_start + steps) * KEYS
//! extent v_out: (rows // steps - 1) * out_stride + (RING or cache_start + steps) * KEYS
//! extent cosines: SINES + (start + steps - 1) * angle_strides[0] + (QUERIES // HEAD_WIDTH - 1) * angle_strides[1] + angle_columns
//! extent sines: (start + steps - 1) * angle_strides[0] + (QUERIES // HEAD_WIDTH - 1) * angle_strides[1] + angle_columns
// Finishes sums over k whose columns are queries, keys and values, side by side: queries and keys are rotated by their
// position, (u, v) -> (u·cos - v·sin, u·sin + v·cos), the angle by step, head and pair of the first ROTARY elements of a head,
// and keys and values are written to their caches, from step `cache_start` on. q4_digits.wgsl combines the two columns of a
// pair, which adjacent lanes hold.
import super::q4_params::{params};
import package::wgsl::lib::angles::{HALVED, first_angle, second_angle};

alias C = f32;
alias Q = f32;
alias KeyOut = f32;
alias ValueOut = f32;
override HEAD_WIDTH: u32 = 64u; // elements of a head, even
override ROTARY: u32 = 64u; // of them, those that are rotated
override QUERIES: u32 = 128u; // columns of all heads
override KEYS: u32 = 128u; // as many are values
override RING: u32 = 0u; // rows of a cache that has those of the last steps only; 0: it has all

@group(0) @binding(6) var<storage, read_write> q_out: array<Q>;
@group(0) @binding(21) var<storage, read_write> k_out: array<KeyOut>;
@group(0) @binding(22) var<storage, read_write> v_out: array<ValueOut>;
@group(0) @binding(23) var<storage, read> cosines: array<C>;
@group(0) @binding(24) var<storage, read> sines: array<C>;

// Whether a column is rotated.
fn is_rotated(n: u32) -> bool { return n < QUERIES + KEYS && n % HEAD_WIDTH < ROTARY; }

// Where the tables' row of a column's step and head begins.
fn angle_base(m: u32, n: u32) -> u32 {
  let head = select(n, n - QUERIES, n >= QUERIES) / HEAD_WIDTH;
  return dot(vec2(u32(params.start) + m % params.steps, head), params.angle_strides);
}

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
