// Kernels declare in Params `start`, the position of the first step: all steps are of one sequence.

// The state of a row's sequence among those of all slots; negative for a padding row.
fn slot_of(row: u32) -> i32 { return 0; }
// Whether a row's sequence starts here, with a state of zeros.
fn is_new(row: u32) -> bool { return params.start == 0; }
