//! loops: 4
//! extent indices: ceil(count, TABLE_WORDS)
// out[i, k] = table[indices[i], k], of 4-bit or 8-bit weights (lib/embedding_row.wgsl). One invocation unpacks one word:
// eight elements.
import package::wgsl::lib::index::{flat_index};
import super::lib::embedding_row::{TABLE_WORDS, embedding_eight};

alias R = f32;
const WORKGROUP = 64u;

struct Params {
  count: u32, // words to unpack
}

@group(0) @binding(3) var<storage, read_write> out: array<R>;
@group(0) @binding(4) var<uniform> params: Params;

@compute @workgroup_size(WORKGROUP)
fn main(@builtin(global_invocation_id) id: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>) {
  let i = flat_index(id, groups);
  if (i >= params.count) { return; }
  let eight = embedding_eight(i / TABLE_WORDS, i % TABLE_WORDS);
  for (var e = 0u; e < 4u; e++) {
    out[8u * i + e] = R(eight[0][e]);
    out[8u * i + 4u + e] = R(eight[1][e]);
  }
}
