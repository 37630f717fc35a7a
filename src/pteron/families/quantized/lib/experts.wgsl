//! extent experts: rows * KEPT
//! extent shares: rows * KEPT
// The matrix of weights that row m of a product is multiplied with: the only one; matrix experts[m] of MATRICES, which
// follow one another; or each in turn. If gated, the gates of all matrices come before all values. SHARE rows have the
// same x. With KEPT > 1, x is KEPT parts side by side: part j is multiplied with matrix experts[m, j] and counts
// shares[m, j] times.
import super::q4_params::{params};

override MATRICES: u32 = 1u;
override SHARE: u32 = 1u; // rows m per row of x
override KEPT: u32 = 1u; // matrices per row
override IN_TURN: bool = false; // row m takes matrix m % MATRICES
alias H = f32;

@group(0) @binding(23) var<storage, read> experts: array<i32>;
@group(0) @binding(24) var<storage, read> shares: array<H>;

// The first row of the weights for row m. IS_GATED is the kernel's.
fn first_row(m: u32) -> u32 {
  @if(experts && IS_GATED) return min(u32(experts[m]), MATRICES - 1u) * (params.columns / 2u);
  @elif(experts) return min(u32(experts[m]), MATRICES - 1u) * params.columns;
  @elif(IN_TURN) return m % MATRICES * params.columns;
  @else return 0u;
}

// The row of x for row m.
fn x_row(m: u32) -> u32 { return m / SHARE; }
