// The states of sequences. With places, the (position, slot) of each row, every row is a step of its own sequence; without
// them, all steps are of one sequence, from position `start` on. Kernels declare `places`, and in Params `start` and the
// number of slots.

// The state of a row's sequence among those of all slots; negative for a padding row.
fn slot_of(row: u32) -> i32 {
  @if(places) return min(places[row].y, i32(params.slots) - 1);
  @else return 0;
}

// Whether a row's sequence starts here, with a state of zeros.
fn is_new(row: u32) -> bool {
  @if(places) return places[row].x <= 0;
  @else return params.start == 0;
}
