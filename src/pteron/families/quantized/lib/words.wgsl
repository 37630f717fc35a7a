//! extent weights: MATRICES * columns * PITCH
// Words of eight 4-bit weights, the lowest nibble first, each stored as its value plus 8. PITCH is the kernel's.
import super::nibbles::{unpack_nibbles};

alias Word = u32;

@group(0) @binding(1) var<storage, read> weights: array<u32>;

fn load_word(n: u32, word: u32) -> Word { return weights[n * PITCH + word]; }

// Four weights of a word, from the one at `first` (0 or 4) on.
fn unpack(word: Word, first: u32) -> vec4<f32> { return unpack_nibbles(word, first); }
