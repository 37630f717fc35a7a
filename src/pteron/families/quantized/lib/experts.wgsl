//! extent experts: rows
// Row m is multiplied with matrix experts[m] of MATRICES, which follow one another; SHARE rows have the same x.
const MATRICES = 1u;
const SHARE = 1u;

@group(0) @binding(23) var<storage, read> experts: array<i32>;

// The first row of the weights for row m.
fn first_row(m: u32) -> u32 { return min(u32(experts[m]), MATRICES - 1u) * params.columns; }
fn x_row(m: u32) -> u32 { return m / SHARE; }
