// Broadcasts the values of the first four lanes of a subgroup. Workgroups are multiples of four, so that every
// subgroup has four lanes.
fn of_four_lanes(own: f32) -> vec4<f32> {
  return vec4(
    subgroupBroadcast(own, 0u),
    subgroupBroadcast(own, 1u),
    subgroupBroadcast(own, 2u),
    subgroupBroadcast(own, 3u),
  );
}
