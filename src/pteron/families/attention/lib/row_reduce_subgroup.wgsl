// The same as row_reduce.wgsl, for invocations that are neighbours in a subgroup at least as wide.

fn greatest_of_rows(values: vec4<f32>, local: u32) -> vec4<f32> {
  var most = values;
  for (var apart = 1u; apart < KEYS / 4u; apart *= 2u) { most = max(most, subgroupShuffleXor(most, apart)); }
  workgroupBarrier();
  return most;
}

fn sum_of_rows(values: vec4<f32>, local: u32) -> vec4<f32> {
  var sum = values;
  for (var apart = 1u; apart < KEYS / 4u; apart *= 2u) { sum += subgroupShuffleXor(sum, apart); }
  return sum;
}
