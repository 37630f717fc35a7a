//! extent experts: rows * KEPT
//! extent shares: rows * KEPT
// Row m is multiplied with matrix experts[m] of MATRICES, which follow one another; SHARE rows have the same x. With
// KEPT > 1, x is KEPT parts side by side: part j is multiplied with matrix experts[m, j] and counts shares[m, j] times.
const MATRICES = 1u;
const SHARE = 1u;
const KEPT = 1u;
alias H = f32;

@group(0) @binding(23) var<storage, read> experts: array<i32>;
@group(0) @binding(24) var<storage, read> shares: array<H>;

// The first row of the weights for row m.
fn first_row(m: u32) -> u32 { return min(u32(experts[m]), MATRICES - 1u) * params.columns; }
fn x_row(m: u32) -> u32 { return m / SHARE; }
