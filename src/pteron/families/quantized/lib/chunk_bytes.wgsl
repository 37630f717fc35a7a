//! extent weights: 8 * MATRICES * columns * PITCH
//! extent minima: MATRICES * columns * GROUPS
// Chunks of 32 8-bit weights in the order of k, with a scale and perhaps a minimum for the chunk or for each half
// (HAS_TWO_SCALES). The declarations are those of lib/chunk_nibbles.wgsl; `scales`, GROUP, GROUPS and PLANES
// are q4_digits.wgsl's.
alias Chunk = array<vec4<u32>, 2>;
alias Scales = vec4<f32>; // scales and minima of both halves

@group(0) @binding(1) var<storage, read> weights: array<vec4<u32>>;
@group(0) @binding(29) var<storage, read> minima: array<f32>; // [n][group]

fn load_chunk(at: u32) -> Chunk { return array(weights[2u * at], weights[2u * at + 1u]); }

fn minimum(group: u32) -> f32 {
  @if(minima) return minima[group];
  @else return 0.0;
}

fn load_scales(row: u32, place: u32) -> Scales {
  if (HAS_TWO_SCALES) {
    let first = row * GROUPS + 2u * place;
    return vec4(scales[first], scales[first + 1u], minimum(first), minimum(first + 1u));
  }
  let group = row * GROUPS + place / GROUP;
  return vec4(scales[group], 0.0, minimum(group), 0.0);
}

fn in_order(left: vec4<u32>, right: vec4<u32>) -> array<vec4<u32>, 2> { return array(left, right); }

fn chunk_start(sum: u32) -> u32 { return sum; } // for the product with a minimum

// Σ digit · weight, for one plane of half a chunk.
fn plane_sum(bytes: vec4<u32>, digits: vec4<u32>) -> i32 {
  return dot4I8Packed(bytes.x, digits.x) + dot4I8Packed(bytes.y, digits.y)
    + dot4I8Packed(bytes.z, digits.z) + dot4I8Packed(bytes.w, digits.w);
}

// The exact sum of half a chunk: x is the sum of its two lower digits, 2^16 · y that of the third one.
fn half_sum(chunk: Chunk, halves: array<vec4<u32>, 2u * PLANES>, half: u32) -> vec2<i32> {
  var low = plane_sum(chunk[half], halves[half]);
  if (PLANES > 1u) { low += plane_sum(chunk[half], halves[(2u + half) % (2u * PLANES)]) << 8u; }
  if (PLANES < 3u) { return vec2(low, 0); }
  return vec2(low, plane_sum(chunk[half], halves[(4u + half) % (2u * PLANES)]));
}

fn rounded(sum: vec2<i32>) -> f32 { return fma(f32(sum.y), 65536.0, f32(sum.x)); }

fn add_chunk(
  before: f32, chunk: Chunk, by: Scales, halves: array<vec4<u32>, 2u * PLANES>, unit: vec2<u32>, zero: i32,
) -> f32 {
  let scale = bitcast<f32>(unit.y) * by;
  let first = half_sum(chunk, halves, 0u);
  let second = half_sum(chunk, halves, 1u);
  if (!HAS_TWO_SCALES) {
    let sum = fma(rounded(first + second), scale.x, before);
    @if(minima) return fma(f32(i32(unit.x)), scale.z, sum);
    @else return sum;
  }
  let sum = fma(rounded(second), scale.y, fma(rounded(first), scale.x, before));
  @if(minima) {
    let ones = Chunk(vec4(0x01010101u), vec4(0x01010101u)); // Σ x of each half
    return fma(rounded(half_sum(ones, halves, 1u)), scale.w, fma(rounded(half_sum(ones, halves, 0u)), scale.z, sum));
  }
  @else return sum;
}
