// Broadcasts the values of the first four lanes of a subgroup, which has four lanes or eight (llvmpipe's vectors of 128 or
// 256 bits). Workgroups are of four or eight invocations that want the same four values.
fn of_four_lanes(own: f32) -> vec4<f32> {
  return vec4(
    subgroupBroadcast(own, 0u),
    subgroupBroadcast(own, 1u),
    subgroupBroadcast(own, 2u),
    subgroupBroadcast(own, 3u),
  );
}
