// Logits as a sampler sees them: tokens that were already there are made less likely by `penalty`.
fn penalised(value: f32, was_seen: bool, penalty: f32) -> f32 {
  if (!was_seen) { return value; }
  return select(value / penalty, value * penalty, value < 0.0);
}

// Three rounds of a permuted congruential generator over (seed, step, token): a uniform number in (0, 1).
fn uniform_noise(seed: u32, step: u32, token: u32) -> f32 {
  var v = vec3(seed, step, token) * 1664525u + 1013904223u;
  v.x += v.y * v.z;
  v.y += v.z * v.x;
  v.z += v.x * v.y;
  v ^= v >> vec3(16u);
  v.x += v.y * v.z;
  v.y += v.z * v.x;
  v.z += v.x * v.y;
  return (f32(v.z >> 8u) + 0.5) / 16777216.0;
}
