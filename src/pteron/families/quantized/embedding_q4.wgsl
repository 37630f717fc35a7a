//! use index
//! use nan
//! use nibbles
//! loops: 4
// out[i, k] = w[indices[i], k] · scale[indices[i], k / group], w in 4 bits. One invocation unpacks one
// word: eight elements. An index out of range gives NaN.
alias I = i32;
alias R = f32;
const WORKGROUP = 64u;
const HIGH_FIRST = false; // the higher nibble of a byte is the even column

struct Params {
  count: u32, // words to unpack
  size: u32, // rows of w
  words: u32, // in a row of w
  words_per_group: u32,
}

@group(0) @binding(0) var<storage, read> weights: array<u32>;
@group(0) @binding(1) var<storage, read> scales: array<f32>;
@group(0) @binding(2) var<storage, read> indices: array<I>;
@group(0) @binding(3) var<storage, read_write> out: array<R>;
@group(0) @binding(4) var<uniform> params: Params;

@compute @workgroup_size(WORKGROUP)
fn main(@builtin(global_invocation_id) id: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>) {
  let i = flat_index(id, groups);
  if (i >= params.count) { return; }
  let word = i % params.words;
  let index = i32(indices[i / params.words]);
  var scale = nan();
  var packed = 0u;
  if (index >= 0 && index < i32(params.size)) {
    let groups_per_row = (params.words + params.words_per_group - 1u) / params.words_per_group;
    scale = scales[u32(index) * groups_per_row + word / params.words_per_group];
    packed = weights[u32(index) * params.words + word];
  }
  if (HIGH_FIRST) { packed = ((packed & 0x0f0f0f0fu) << 4u) | ((packed >> 4u) & 0x0f0f0f0fu); }
  let low = unpack_nibbles(packed, 0u) * scale;
  let high = unpack_nibbles(packed, 4u) * scale;
  for (var e = 0u; e < 4u; e++) {
    out[8u * i + e] = R(low[e]);
    out[8u * i + 4u + e] = R(high[e]);
  }
}
