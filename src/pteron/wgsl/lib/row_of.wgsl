// Kernels declare the places of rows, (position, slot), and in Params the number of slots and the capacity of a slot.
const IS_RING = false; // a slot has the rows of the last positions only: position p is in row p % capacity

// The index of a row's place among the rows of all slots; negative for a padding row.
fn row_of(row: u32) -> i32 {
  let place = places[row];
  let capacity = i32(params.capacity);
  let is_there = all(place >= vec2(0)) && (IS_RING || place.x < capacity) && place.y < i32(params.slots);
  return select(-1, place.y * capacity + place.x % capacity, is_there);
}
