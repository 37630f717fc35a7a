//! loops: ROWS * (1 + ceil(QUADS, 2 * WORKGROUP))
//! extent indices: rows
//! extent x: 4 * rows * QUADS
// Rows of x come from an embedding (lib/embedding_row.wgsl), rounded to the stored type. The first workgroup of each
// group of rows writes them to memory for later launches.
import super::embedding_row::{embedding_eight};

@group(0) @binding(0) var<storage, read_write> x: array<vec4<X>>;

// Two vec4s of a row, neighbours or, past its end, the last ones; a row has whole pairs.
fn load_pair(m: u32, quads: vec2<u32>) -> mat2x4<f32> {
  let eight = embedding_eight(m, quads.x / 2u);
  return mat2x4(vec4<f32>(vec4<X>(eight[0])), vec4<f32>(vec4<X>(eight[1])));
}

fn keep_rows(block: u32, m_first: u32, local: u32) {
  if (block != 0u) { return; }
  for (var m = m_first; m < m_first + ROWS; m++) {
    for (var word = local; word < QUADS / 2u; word += WORKGROUP) {
      let eight = embedding_eight(m, word);
      x[m * QUADS + 2u * word] = vec4<X>(eight[0]);
      x[m * QUADS + 2u * word + 1u] = vec4<X>(eight[1]);
    }
  }
}
