//! extent weights: 2 * MATRICES * columns * PITCH
// Words of eight 8-bit weights, the lowest byte first. PITCH is the kernel's.
alias Word = vec2<u32>;

@group(0) @binding(1) var<storage, read> weights: array<vec2<u32>>;

fn load_word(n: u32, word: u32) -> Word { return weights[n * PITCH + word]; }

// Four weights of a word, from the one at `first` (0 or 4) on.
fn unpack(word: Word, first: u32) -> vec4<f32> {
  return vec4<f32>(unpack4xI8(select(word.x, word.y, first == 4u)));
}
