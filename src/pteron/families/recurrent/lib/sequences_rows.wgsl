// Kernels declare the places of rows, (position, slot), and in Params the number of slots.

// The state of a row's sequence among those of all slots; negative for a padding row.
fn slot_of(row: u32) -> i32 { return min(places[row].y, i32(params.slots) - 1); }
// Whether a row's sequence starts here, with a state of zeros.
fn is_new(row: u32) -> bool { return places[row].x <= 0; }
