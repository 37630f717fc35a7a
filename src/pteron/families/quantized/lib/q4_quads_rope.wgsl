//! extent q_out: rows * QUERIES
//! extent k_out: (rows // steps - 1) * out_stride + (RING or cache_start + steps) * KEYS
//! extent v_out: (rows // steps - 1) * out_stride + (RING or cache_start + steps) * KEYS
// Finishes sums over k whose columns are queries, keys and values, as lib/q4_rope.wgsl, but four adjacent columns at
// a time. `finish_quad` rotates pairs of adjacent columns. If pairs are (j, j + half),
// q4_merge_rope.wgsl combines them.
import super::q4_params::{params};
import super::q4_angles::{HEAD_WIDTH, KEYS, QUERIES, RING, angle_base, first_angle, is_rotated, second_angle};

alias Q = f32;
alias KeyOut = f32;
alias ValueOut = f32;

@group(0) @binding(6) var<storage, read_write> q_out: array<vec4<Q>>;
@group(0) @binding(21) var<storage, read_write> k_out: array<vec4<KeyOut>>;
@group(0) @binding(22) var<storage, read_write> v_out: array<vec4<ValueOut>>;

// (cosine, sine) of the first element of a pair, then of the second, as in rope.wgsl.
fn pair_angles(base: u32, pair: u32) -> vec4<f32> {
  return vec4(first_angle(base, pair), second_angle(base, pair));
}

// Rotates a pair, with the rounding of rope.wgsl.
fn rotate(x: vec2<f32>, by: vec4<f32>) -> vec2<f32> {
  return vec2(fma(x.x, by.x, -(x.y * by.y)), fma(x.y, by.z, x.x * by.w));
}

fn put(m: u32, n: u32, value: vec4<f32>) {
  if (n < QUERIES) {
    q_out[(m * QUERIES + n) / 4u] = vec4<Q>(value);
    return;
  }
  var step = u32(params.cache_start) + m % params.steps;
  if (RING > 0u) { step %= max(RING, 1u); }
  let to = m / params.steps * params.out_stride + step * KEYS + n - QUERIES;
  if (n < QUERIES + KEYS) {
    k_out[to / 4u] = vec4<KeyOut>(value);
  } else {
    v_out[(to - KEYS) / 4u] = vec4<ValueOut>(value);
  }
}

// Stores a quad, rotated.
fn finish_quad(m: u32, n: u32, given: vec4<f32>) {
  var value = given;
  if (is_rotated(n)) {
    let base = angle_base(m, n);
    let pair = n % HEAD_WIDTH / 2u;
    value = vec4(rotate(value.xy, pair_angles(base, pair)), rotate(value.zw, pair_angles(base, pair + 1u)));
  }
  put(m, n, value);
}
