//! extent weights: MATRICES * columns * PITCH
// Words of eight 4-bit weights, where rows are whole fours of them. PITCH is the kernel's.
import super::nibbles::{unpack_nibbles};

@group(0) @binding(1) var<storage, read> weights: array<vec4<u32>>;

fn load_words(n: u32, first: u32) -> vec4<u32> { return weights[(n * PITCH + first) / 4u]; }

fn unpack_words(words: vec4<u32>) -> array<vec4<f32>, 8> {
  return array(
    unpack_nibbles(words.x, 0u), unpack_nibbles(words.x, 4u),
    unpack_nibbles(words.y, 0u), unpack_nibbles(words.y, 4u),
    unpack_nibbles(words.z, 0u), unpack_nibbles(words.z, 4u),
    unpack_nibbles(words.w, 0u), unpack_nibbles(words.w, 4u),
  );
}
