// The elements of cached values, four at a time. `row` is where a head begins, in units of VALUE_UNIT elements.
alias V = f32;
const VALUE_UNIT = 4u;

@group(0) @binding(2) var<storage, read> v: array<vec4<V>>;

fn value_quad(row: u32, quad: u32) -> vec4<f32> { return vec4<f32>(v[row + quad]); }
