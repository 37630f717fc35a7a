//! use nan
//! use nibbles
//! extent table: TABLE_SIZE * TABLE_WORDS
//! extent table_scales: TABLE_SIZE * TABLE_GROUPS
// Rows that indices pick from a table of 4-bit weights: table[indices[i], k] · scale[indices[i], k / group]. An
// index out of range gives NaN.
alias I = i32;
const TABLE_SIZE = 1u; // rows of the table
const TABLE_WORDS = 1u; // words of eight weights per row
const TABLE_GROUP = 1u; // words that share a scale
const TABLE_GROUPS = (TABLE_WORDS + TABLE_GROUP - 1u) / TABLE_GROUP;
const HIGH_FIRST = false; // the higher nibble of a byte is the even column

@group(0) @binding(26) var<storage, read> table: array<u32>;
@group(0) @binding(27) var<storage, read> table_scales: array<f32>;
@group(0) @binding(28) var<storage, read> indices: array<I>;

// The eight elements of a word of row i.
fn embedding_eight(i: u32, word: u32) -> mat2x4<f32> {
  let index = i32(indices[i]);
  var scale = nan();
  var packed = 0u;
  if (index >= 0 && index < i32(TABLE_SIZE)) {
    scale = table_scales[u32(index) * TABLE_GROUPS + word / TABLE_GROUP];
    packed = table[u32(index) * TABLE_WORDS + word];
  }
  if (HIGH_FIRST) { packed = ((packed & 0x0f0f0f0fu) << 4u) | ((packed >> 4u) & 0x0f0f0f0fu); }
  return mat2x4(unpack_nibbles(packed, 0u) * scale, unpack_nibbles(packed, 4u) * scale);
}
