// What the first four lanes of a subgroup hold, for all of them. A kernel's workgroups are whole fours.
fn spread(own: f32) -> vec4<f32> {
  return vec4(
    subgroupBroadcast(own, 0u),
    subgroupBroadcast(own, 1u),
    subgroupBroadcast(own, 2u),
    subgroupBroadcast(own, 3u),
  );
}
