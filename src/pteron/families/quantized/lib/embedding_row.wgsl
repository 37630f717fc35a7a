//! extent table_scales: TABLE_SIZE * TABLE_GROUPS
//! extent table_minima: TABLE_SIZE * TABLE_GROUPS
// Rows that indices pick from a table of 4-bit or 8-bit weights: table[indices[i], k] · scale[indices[i], k / group],
// plus the minimum of the group if it has one. An index out of range gives NaN.
import package::wgsl::lib::nan::{nan};
@if(TABLE_IN_BYTES) import super::table_bytes::{TableWord, load_table, unpack_table};
@else import super::table_nibbles::{TableWord, load_table, unpack_table};

alias I = i32;
override TABLE_IN_BYTES: bool = false;
override TABLE_SIZE: u32 = 1u; // rows of the table
override TABLE_WORDS: u32 = 1u; // words of eight weights per row
override TABLE_GROUP: u32 = 1u; // words that share a scale
const TABLE_GROUPS = (TABLE_WORDS + TABLE_GROUP - 1u) / TABLE_GROUP;

@group(0) @binding(27) var<storage, read> table_scales: array<f32>;
@group(0) @binding(28) var<storage, read> indices: array<I>;
@group(0) @binding(34) var<storage, read> table_minima: array<f32>;

// The eight elements of a word of row i.
fn embedding_eight(i: u32, word: u32) -> mat2x4<f32> {
  let index = i32(indices[i]);
  var scale = nan();
  var least = 0.0;
  var packed = TableWord();
  if (index >= 0 && index < i32(TABLE_SIZE)) {
    let group = u32(index) * TABLE_GROUPS + word / TABLE_GROUP;
    scale = table_scales[group];
    @if(table_minima) least = table_minima[group];
    packed = load_table(u32(index) * TABLE_WORDS + word);
  }
  return mat2x4(unpack_table(packed, 0u) * scale + least, unpack_table(packed, 4u) * scale + least);
}
