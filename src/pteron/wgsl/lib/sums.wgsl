// Sums in blocks, of a row that LANES invocations share. A lane adds up to BLOCK values one after the other,
// BLOCK such blocks into the next sum, and those into the last: a value passes through three short sums instead
// of a long one, and through three more for each merge of a row's parts. The error of a sum of n values is at most
//
//     (4 · log2(n) + 32) · 2^-24 · Σ|value|
//
// for n up to 2^25. A kernel walks
//
//     for (var block = lane; block < length; block += BLOCK * LANES) {
//       var sum = 0.0;
//       for (var k = block; k < min(block + BLOCK * LANES, length); k += LANES) { sum += value(k); }
//       sums = carry(sums, sum, block / (BLOCK * LANES));
//     }
import super::rows::{Lane};

const BLOCK = 16u;

// The sums (of the blocks since the last carry, of those before) with another block, the index-th.
fn carry(sums: vec2<Lane>, block: Lane, index: u32) -> vec2<Lane> {
  let sum = sums.x + block;
  return select(vec2(sum, sums.y), vec2(Lane(), sums.y + sum), index % BLOCK == BLOCK - 1u);
}
