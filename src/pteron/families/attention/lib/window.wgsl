// A query sees the keys up to its own; with a window, only the last WINDOW of them.
override WINDOW: u32 = 0u; // keys; 0: all
override RING: u32 = 0u; // rows of a cache that has those of the last positions only; 0: it has a row for each position

// The first key that a query sees; `end` is one past the last.
fn first_seen(end: u32) -> u32 {
  if (WINDOW == 0u) { return 0u; }
  return end - min(end, WINDOW);
}

// The row of a key in its cache, and those of four keys.
fn cache_row(key: u32) -> u32 {
  if (RING == 0u) { return key; }
  return key % max(RING, 1u);
}
fn four_cache_rows(keys: vec4<u32>) -> vec4<u32> {
  if (RING == 0u) { return keys; }
  return keys % max(RING, 1u);
}
