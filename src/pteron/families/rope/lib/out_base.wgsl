// Where a head of keys or of values is written to: a step of a batch, from step `cache_start` on.
fn out_base(row: u32, head: u32) -> u32 {
  let step = u32(params.cache_start) + row % params.steps;
  return row / params.steps * params.out_stride + (step * params.key_heads + head) * params.width;
}
