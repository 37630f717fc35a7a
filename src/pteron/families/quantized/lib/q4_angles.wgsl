//! extent cosines: SINES + (start + steps - 1) * angle_strides[0] + (QUERIES // HEAD_WIDTH - 1) * angle_strides[1] + angle_columns
//! extent sines: (start + steps - 1) * angle_strides[0] + (QUERIES // HEAD_WIDTH - 1) * angle_strides[1] + angle_columns
// The angles of columns that are queries, keys and values, side by side: queries and keys are rotated by their
// position, (u, v) -> (u·cos - v·sin, u·sin + v·cos), the angle by step, head and pair of the first ROTARY elements
// of a head.
import super::q4_params::{params};
import package::wgsl::lib::angles::{first_angle, second_angle};

alias C = f32;
override HEAD_WIDTH: u32 = 64u; // elements of a head, even
override ROTARY: u32 = 64u; // of them, those that are rotated
override QUERIES: u32 = 128u; // columns of all heads
override KEYS: u32 = 128u; // as many are values
override RING: u32 = 0u; // rows of a cache that has those of the last steps only; 0: it has all

@group(0) @binding(23) var<storage, read> cosines: array<C>;
@group(0) @binding(24) var<storage, read> sines: array<C>;

// Whether a column is rotated.
fn is_rotated(n: u32) -> bool { return n < QUERIES + KEYS && n % HEAD_WIDTH < ROTARY; }

// Where the tables' row of a column's step and head begins.
fn angle_base(m: u32, n: u32) -> u32 {
  let head = select(n, n - QUERIES, n >= QUERIES) / HEAD_WIDTH;
  return dot(vec2(u32(params.start) + m % params.steps, head), params.angle_strides);
}
