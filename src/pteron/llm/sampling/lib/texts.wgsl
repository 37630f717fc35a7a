// Where a workgroup finds what belongs to the text that it draws for: there is one. texts_of_rows.wgsl has the same
// functions for several.

// Where its logits begin.
fn base_of(group: vec3<u32>) -> u32 { return params.base; }
// The first of its blocks.
fn first_block(group: vec3<u32>) -> u32 { return 0u; }
fn row_of(group: vec3<u32>) -> u32 { return 0u; }
