//! loops: ceil(block_count, LANES) + 8
// The greatest of all logits after the repetition penalty, from the results of sample_scan; returned to all lanes.
// `blocks` is the kernel's.
import package::wgsl::lib::nan::{LOWEST};
import package::wgsl::lib::rows::{LANES, row_max};
import super::row::{first_block};

fn likeliest(group: vec3<u32>, local: u32) -> f32 {
  var most = LOWEST;
  let first = first_block(group);
  for (var block = local; block < params.block_count; block += LANES) {
    most = max(most, blocks[first + block].z);
  }
  return row_max(most, local);
}
