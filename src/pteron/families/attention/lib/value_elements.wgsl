// The elements of cached values, one at a time. `row` is where a head begins.
alias V = f32;

@group(0) @binding(2) var<storage, read> v: array<V>;

fn value_element(row: u32, d: u32) -> f32 { return f32(v[row + d]); }
