//! extent table: TABLE_SIZE * TABLE_WORDS
// A table's words of eight 4-bit weights.
import super::nibbles::{unpack_nibbles};

alias TableWord = u32;
override HIGH_FIRST: bool = false; // the higher nibble of a byte is the even column

@group(0) @binding(26) var<storage, read> table: array<u32>;

fn load_table(at: u32) -> TableWord {
  let packed = table[at];
  if (HIGH_FIRST) { return ((packed & 0x0f0f0f0fu) << 4u) | ((packed >> 4u) & 0x0f0f0f0fu); }
  return packed;
}

// Four weights of a word, from the one at `first` (0 or 4) on.
fn unpack_table(word: TableWord, first: u32) -> vec4<f32> { return unpack_nibbles(word, first); }
