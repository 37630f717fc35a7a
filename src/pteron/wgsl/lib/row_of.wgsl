// The row of a cache that a row of keys or values goes to, among the rows of all slots. With places, the (position, slot)
// of each row, it is negative for a padding row; without them, each slot gets `steps` rows, from position `start` on.
// Kernels declare `places`, and in Params the number of slots and the capacity of a slot.
override IS_RING: bool = false; // a slot has the rows of the last positions only: position p is in row p % capacity

fn row_of(row: u32) -> i32 {
  @if(places) {
    let place = places[row];
    let capacity = i32(params.capacity);
    let is_there = all(place >= vec2(0)) && (IS_RING || place.x < capacity) && place.y < i32(params.slots);
    return select(-1, place.y * capacity + place.x % capacity, is_there);
  }
  @else {
    var step = u32(params.start) + row % params.steps;
    @if(IS_RING) step %= params.capacity;
    return i32(row / params.steps * params.capacity + step);
  }
}
