// Where a workgroup finds its row of logits and its blocks: there is one row. batch_rows.wgsl has the same functions
// for several.

// The first of its logits.
fn base_of(group: vec3<u32>) -> u32 { return params.base; }
// The first of its blocks.
fn first_block(group: vec3<u32>) -> u32 { return 0u; }
fn row_of(group: vec3<u32>) -> u32 { return 0u; }
