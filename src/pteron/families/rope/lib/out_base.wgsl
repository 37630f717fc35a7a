// Where a head of keys or of values is written to: a step of a batch, from step `cache_start` on.
override RING: u32 = 0u; // steps of an output that has the last ones only: step s is in place s % RING; 0: it has all

fn out_base(row: u32, head: u32) -> u32 {
  var step = u32(params.cache_start) + row % params.steps;
  if (RING > 0u) { step %= max(RING, 1u); }
  return row / params.steps * params.out_stride + (step * params.key_heads + head) * params.width;
}
