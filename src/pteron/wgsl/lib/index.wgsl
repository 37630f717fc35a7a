// The flat index of an invocation. Grids longer than a device's limit are folded into rows of
// workgroups, so the row counts too. A kernel declares its WORKGROUP, the invocations per workgroup.
fn flat_index(id: vec3<u32>, groups: vec3<u32>) -> u32 {
  return id.x + id.y * groups.x * WORKGROUP;
}
