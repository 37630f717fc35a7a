//! loops: 4
//! extent indices: ceil(count, TABLE_WORDS)
//! extent table_scales: TABLE_SIZE * TABLE_GROUPS
//! extent table_minima: TABLE_SIZE * TABLE_GROUPS
// Rows that indices pick from a table of 4-bit or 8-bit weights: out[i, k] = table[indices[i], k] ·
// scale[indices[i], k / group], plus the minimum of the group if it has one. An index out of range gives NaN. One
// invocation unpacks one word: eight elements.
import package::wgsl::lib::index::{flat_index};
import package::wgsl::lib::nan::{nan};
@if(TABLE_IN_BYTES) import super::lib::table_bytes::{TableWord, load_table, unpack_table};
@else import super::lib::table_nibbles::{TableWord, load_table, unpack_table};

alias I = i32;
alias R = f32;
const WORKGROUP = 64u;
override TABLE_IN_BYTES: bool = false;
override TABLE_SIZE: u32 = 1u; // rows of the table
override TABLE_WORDS: u32 = 1u; // words of eight weights per row
override TABLE_GROUP: u32 = 1u; // words that share a scale
const TABLE_GROUPS = (TABLE_WORDS + TABLE_GROUP - 1u) / TABLE_GROUP;

struct Params {
  count: u32, // words to unpack
}

@group(0) @binding(3) var<storage, read_write> out: array<R>;
@group(0) @binding(4) var<uniform> params: Params;
@group(0) @binding(27) var<storage, read> table_scales: array<f32>;
@group(0) @binding(28) var<storage, read> indices: array<I>;
@group(0) @binding(34) var<storage, read> table_minima: array<f32>;

@compute @workgroup_size(WORKGROUP)
fn main(@builtin(global_invocation_id) id: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>) {
  let i = flat_index(id, groups);
  if (i >= params.count) { return; }
  let index = i32(indices[i / TABLE_WORDS]);
  let word = i % TABLE_WORDS;
  var scale = nan();
  var least = 0.0;
  var packed = TableWord();
  if (index >= 0 && index < i32(TABLE_SIZE)) {
    let group = u32(index) * TABLE_GROUPS + word / TABLE_GROUP;
    scale = table_scales[group];
    @if(table_minima) least = table_minima[group];
    packed = load_table(u32(index) * TABLE_WORDS + word);
  }
  let low = unpack_table(packed, 0u) * scale + least;
  let high = unpack_table(packed, 4u) * scale + least;
  for (var e = 0u; e < 4u; e++) {
    out[8u * i + e] = R(low[e]);
    out[8u * i + 4u + e] = R(high[e]);
  }
}
