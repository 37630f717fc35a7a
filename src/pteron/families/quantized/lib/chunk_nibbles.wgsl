//! extent weights: 4 * MATRICES * columns * PITCH
// Chunks of 32 4-bit weights with one scale, the lowest nibble of the first word first: byte i of a word has the weights of
// k = 2i and 2i + 1. Weights are stored as their value plus 8, so the sum of a chunk starts at -8 · Σ x. `scales`, GROUP,
// GROUPS and PLANES are q4_digits.wgsl's, whose chunks have these declarations or those of lib/chunk_bytes.wgsl.
alias Chunk = vec4<u32>;
alias Scales = f32;

@group(0) @binding(1) var<storage, read> weights: array<vec4<u32>>;

fn load_chunk(at: u32) -> Chunk { return weights[at]; }

fn load_scales(row: u32, place: u32) -> Scales { return scales[row * GROUPS + place / GROUP]; }

// The digits of eight elements of x in words: those of even k, and those of odd k, the order in which two masks
// extract weights.
fn in_order(left: vec4<u32>, right: vec4<u32>) -> array<vec4<u32>, 2> {
  return array(vec4(left.xz, right.xz), vec4(left.yw, right.yw));
}

// What is kept of a chunk of x whose elements add up to `sum`: the initial value of its sums.
fn chunk_start(sum: u32) -> u32 { return 0u - 8u * sum; }

// start + Σ digit · weight, for one plane of a chunk.
fn plane_sum(start: i32, even: vec4<u32>, odd: vec4<u32>, left: vec4<u32>, right: vec4<u32>) -> i32 {
  return start + dot4I8Packed(even.x, left.x) + dot4I8Packed(odd.x, left.y)
    + dot4I8Packed(even.y, left.z) + dot4I8Packed(odd.y, left.w)
    + dot4I8Packed(even.z, right.x) + dot4I8Packed(odd.z, right.y)
    + dot4I8Packed(even.w, right.z) + dot4I8Packed(odd.w, right.w);
}

// Σ weight of a chunk, of weights as stored (plus 8): a byte sum is at most 8 · 15.
fn weights_sum(even: vec4<u32>, odd: vec4<u32>) -> i32 {
  let both = even + odd;
  return dot4I8Packed(both.x + both.y + both.z + both.w, 0x01010101u);
}

// `before`, plus the product of a chunk of weights and a chunk of x: its planes, what is kept of it, its zero point.
fn add_chunk(
  before: f32, chunk: Chunk, by: Scales, halves: array<vec4<u32>, 2u * PLANES>, unit: vec2<u32>, zero: i32,
) -> f32 {
  let even = chunk & vec4(0x0f0f0f0fu);
  let odd = (chunk >> vec4(4u)) & vec4(0x0f0f0f0fu);
  var sum = plane_sum(i32(unit.x), even, odd, halves[0], halves[1]);
  //! unroll
  for (var plane = 1u; plane < PLANES; plane++) {
    sum += plane_sum(0, even, odd, halves[2u * plane], halves[2u * plane + 1u]) << (8u * plane);
  }
  @if(IS_INT8) { sum -= zero * weights_sum(even, odd); }
  // Multiply the unit and the scale first, so that a large x does not overflow unless the result does.
  return fma(f32(sum), bitcast<f32>(unit.y) * by, before);
}
