//! extent x: 4 * rows * QUADS
// Where rows of x come from: memory, as they are.
@group(0) @binding(0) var<storage, read> x: array<vec4<X>>;

// Four elements of a row.
fn given(m: u32, quad: u32) -> vec4<f32> { return vec4<f32>(x[m * QUADS + quad]); }
