//! use angles
//! extent cosines: SINES + (start + steps - 1) * angle_strides[0] + (QUERIES // HEAD_WIDTH - 1) * angle_strides[1] + angle_columns
//! extent sines: (start + steps - 1) * angle_strides[0] + (QUERIES // HEAD_WIDTH - 1) * angle_strides[1] + angle_columns
// The angles of columns that are queries, keys and values, side by side: queries and keys are rotated by their
// position, (u, v) -> (u·cos - v·sin, u·sin + v·cos), the angle by step, head and pair of the first ROTARY elements
// of a head.
alias C = f32;
const HEAD_WIDTH = 64u; // elements of a head, even
const ROTARY = 64u; // of them, those that are rotated
const QUERIES = 128u; // columns of all heads
const KEYS = 128u; // as many are values
const SINES = 0u; // where they begin in `cosines`, if both are in one table

@group(0) @binding(23) var<storage, read> cosines: array<C>;
@group(0) @binding(24) var<storage, read> sines: array<C>;

// Whether a column is rotated.
fn is_rotated(n: u32) -> bool { return n < QUERIES + KEYS && n % HEAD_WIDTH < ROTARY; }

// Where the tables' row of a column's step and head begins.
fn angle_base(m: u32, n: u32) -> u32 {
  let head = select(n, n - QUERIES, n >= QUERIES) / HEAD_WIDTH;
  return dot(vec2(u32(params.start) + m % params.steps, head), params.angle_strides);
}
