// The elements of cached keys, one at a time. `row` is where a head begins.
alias K = f32;

@group(0) @binding(1) var<storage, read> k: array<K>;

fn key_element(row: u32, d: u32) -> f32 { return f32(k[row + d]); }
