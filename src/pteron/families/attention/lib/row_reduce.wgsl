// Over the KEYS / 4 invocations that share four rows: the maximum and the sum of each row,
// given to all of them. Overwrites `tile`; a barrier protects earlier reads.

fn greatest_of_rows(values: vec4<f32>, local: u32) -> vec4<f32> {
  workgroupBarrier();
  tile[local] = values;
  workgroupBarrier();
  let first = local / (KEYS / 4u) * (KEYS / 4u);
  var most = values;
  for (var i = 0u; i < KEYS / 4u; i++) { most = max(most, tile[first + i]); }
  workgroupBarrier();
  return most;
}

fn sum_of_rows(values: vec4<f32>, local: u32) -> vec4<f32> {
  workgroupBarrier();
  tile[local] = values;
  workgroupBarrier();
  let first = local / (KEYS / 4u) * (KEYS / 4u);
  var sum = vec4(0.0);
  for (var i = 0u; i < KEYS / 4u; i++) { sum += tile[first + i]; }
  workgroupBarrier();
  return sum;
}
