// Where a workgroup finds its row of logits and its blocks: the only row, or in a batch row y of the grid.
override IS_BATCH: bool = false;
override BLOCKS: u32 = 1u; // per row

// The first of its logits.
fn base_of(group: vec3<u32>) -> u32 {
  @if(IS_BATCH) return group.y * params.vocabulary;
  @else return params.base;
}

// The first of its blocks.
fn first_block(group: vec3<u32>) -> u32 {
  @if(IS_BATCH) return group.y * BLOCKS;
  @else return 0u;
}

fn row_of(group: vec3<u32>) -> u32 {
  @if(IS_BATCH) return group.y;
  @else return 0u;
}
