// A query sees the keys up to its own; with a window, only the last WINDOW of them.
const WINDOW = 0u; // keys; 0: all

// The first key that a query sees; `end` is one past the last.
fn first_seen(end: u32) -> u32 {
  if (WINDOW == 0u) { return 0u; }
  return end - min(end, WINDOW);
}
