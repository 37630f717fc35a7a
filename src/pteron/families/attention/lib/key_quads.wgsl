// The elements of cached keys, four at a time. `row` is where a head begins, in units of KEY_UNIT elements.
alias K = f32;
const KEY_UNIT = 4u;

@group(0) @binding(1) var<storage, read> k: array<vec4<K>>;

fn key_quad(row: u32, quad: u32) -> vec4<f32> { return vec4<f32>(k[row + quad]); }
