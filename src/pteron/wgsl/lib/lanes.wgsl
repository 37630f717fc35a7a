// What the first four lanes of a subgroup hold, for all of its lanes. Workgroups are whole fours, so that every
// subgroup has them.
fn of_four_lanes(own: f32) -> vec4<f32> {
  return vec4(
    subgroupBroadcast(own, 0u),
    subgroupBroadcast(own, 1u),
    subgroupBroadcast(own, 2u),
    subgroupBroadcast(own, 3u),
  );
}
