// single_row.wgsl for a batch: row y of the grid is a row of logits.
const BLOCKS = 1u; // per row

fn base_of(group: vec3<u32>) -> u32 { return group.y * params.vocabulary; }
fn first_block(group: vec3<u32>) -> u32 { return group.y * BLOCKS; }
fn row_of(group: vec3<u32>) -> u32 { return group.y; }
