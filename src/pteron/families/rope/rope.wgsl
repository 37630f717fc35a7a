//! use index
// Rotates pairs of a head's elements: (u, v) -> (u·cos - v·sin, u·sin + v·cos), the angle by position and
// pair. x is [batch, steps, heads, width]. The first `rotary` elements of a head are rotated, the rest
// are copied. One invocation computes one pair, or copies one of the rest.
alias X = f32;
alias C = f32;
const WORKGROUP = 64u;
const HALVED = false; // pairs are (j, j + rotary/2) where true, (2j, 2j + 1) where not

struct Params {
  count: u32,
  steps: u32,
  heads: u32,
  width: u32,
  rotary: u32,
  start: i32, // the table's row of the first step
}

@group(0) @binding(0) var<storage, read> x: array<X>;
@group(0) @binding(1) var<storage, read> cosines: array<C>;
@group(0) @binding(2) var<storage, read> sines: array<C>;
@group(0) @binding(3) var<storage, read_write> out: array<X>;
@group(0) @binding(4) var<uniform> params: Params;

// Cosine and sine for a table row and a pair, for the pair's first and for its second element.
fn first_angle(row: u32, pair: u32) -> vec2<f32> {
  let i = row * params.rotary / 2u + pair;
  return vec2(f32(cosines[i]), f32(sines[i]));
}
fn second_angle(row: u32, pair: u32) -> vec2<f32> { return first_angle(row, pair); }

@compute @workgroup_size(WORKGROUP)
fn main(@builtin(global_invocation_id) id: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>) {
  let i = flat_index(id, groups);
  if (i >= params.count) { return; }
  let pairs = params.rotary / 2u;
  let work = params.width - pairs; // pairs, and elements that are copied
  let pair = i % work;
  let head = i / work;
  let row = u32(params.start) + head / params.heads % params.steps;
  let base = head * params.width;
  if (pair >= pairs) {
    out[base + pair + pairs] = x[base + pair + pairs];
    return;
  }
  let first = base + select(2u * pair, pair, HALVED);
  let second = select(first + 1u, first + pairs, HALVED);
  let u = f32(x[first]);
  let v = f32(x[second]);
  let a = first_angle(row, pair);
  let b = second_angle(row, pair);
  out[first] = X(u * a.x - v * a.y);
  out[second] = X(u * b.y + v * b.x);
}
