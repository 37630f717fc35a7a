//! extent x: 4 * ceil(rows, SHARE) * QUADS
// Where rows of x come from: memory, as they are.
@group(0) @binding(0) var<storage, read> x: array<vec4<X>>;

// Two vec4s of a row, neighbours or the last one twice.
fn load_pair(m: u32, quads: vec2<u32>) -> mat2x4<f32> {
  let first = x_row(m) * QUADS;
  return mat2x4(vec4<f32>(x[first + quads.x]), vec4<f32>(x[first + quads.y]));
}

fn keep_rows(block: u32, m_first: u32, local: u32) { } // by a workgroup, of the rows that it was given
