//! extent weights: columns * PITCH
// Words of eight 4-bit weights, one at a time, in place of lib/words_four.wgsl.
alias Load = u32;
const LOAD = 1u;

@group(0) @binding(1) var<storage, read> weights: array<u32>;

fn load_words(n: u32, first: u32) -> Load { return weights[(n * PITCH + first) / LOAD]; }
fn word_of(load: Load, index: u32) -> u32 { return load; }
