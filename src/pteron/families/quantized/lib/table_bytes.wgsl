//! extent table: 2 * TABLE_SIZE * TABLE_WORDS
// A table's words of eight 8-bit weights, the lowest byte first.
alias TableWord = vec2<u32>;

@group(0) @binding(26) var<storage, read> table: array<vec2<u32>>;

fn load_table(at: u32) -> TableWord { return table[at]; }

// Four weights of a word, from the one at `first` (0 or 4) on.
fn unpack_table(word: TableWord, first: u32) -> vec4<f32> {
  return vec4<f32>(unpack4xI8(select(word.x, word.y, first == 4u)));
}
