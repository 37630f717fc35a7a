//! use index
//! use q4
//! loops: ceil(PART, BLOCK) * (1 + TILE + BLOCK * (1 + TILE)) + TILE
// A product with 4-bit weights (lib/q4.wgsl). One invocation computes TILE rows of one column over PART words,
// without barriers: what software adapters want. It adds up BLOCK words at a time, then the blocks.
const WORKGROUP = 64u;
const TILE = 4u;
const BLOCK = 4u; // words: a divisor of GROUP and of PART

@compute @workgroup_size(WORKGROUP)
fn main(@builtin(global_invocation_id) id: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>) {
  let i = flat_index(id, groups);
  let tiles = (params.rows + TILE - 1u) / TILE; // of one column
  let n = i % params.columns;
  let first = i / params.columns % tiles * TILE;
  let part = i / params.columns / tiles;
  if (part >= PARTS) { return; }
  let last = min(TILE, params.rows - first) - 1u;
  var sums = array<f32, TILE>();
  for (var base = part * PART; base < min((part + 1u) * PART, WORDS); base += BLOCK) {
    var block = array<f32, TILE>();
    for (var word = base; word < min(base + BLOCK, WORDS); word++) {
      let packed = load_word(n, word);
      let low = unpack(packed, 0u);
      let high = unpack(packed, 4u);
      for (var t = 0u; t < TILE; t++) {
        let m = first + min(t, last);
        block[t] += dot(load(m, 2u * word), low) + dot(load(m, 2u * word + 1u), high);
      }
    }
    let scale = scales[n * GROUPS + base / GROUP];
    for (var t = 0u; t < TILE; t++) { sums[t] += block[t] * scale; }
  }
  for (var t = 0u; t <= last; t++) { store(part, first + t, n, sums[t]); }
}
