//! extent parts: queries * splits * (VALUE_WIDTH + 4)
// Stores the partial results of one split for each query (layout: merge_splits.wgsl). Queries are counted over
// batch, heads and steps, from the first query of the launch on.
@group(0) @binding(8) var<storage, read_write> parts: array<vec4<f32>>;

fn store_result(query: u32, split: u32, quad: u32, values: vec4<f32>, most: f32, total: f32) {
  let at = (query * params.splits + split) * (VALUE_WIDTH / 4u + 1u);
  parts[at + quad] = values;
  if (quad == 0u) { parts[at + VALUE_WIDTH / 4u] = vec4(most, total, 0.0, 0.0); }
}
