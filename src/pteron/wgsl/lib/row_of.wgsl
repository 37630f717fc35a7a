// Kernels declare the places of rows, (position, slot), and in Params the number of slots and the capacity of a slot.

// The index of a row's place among the rows of all slots; negative for a padding row.
fn row_of(row: u32) -> i32 {
  let place = places[row];
  let is_there = all(place >= vec2(0)) && all(place < vec2(i32(params.capacity), i32(params.slots)));
  return select(-1, place.y * i32(params.capacity) + place.x, is_there);
}
