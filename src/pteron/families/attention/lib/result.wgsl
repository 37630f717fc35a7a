//! extent parts: queries * splits * (VALUE_WIDTH + 4)
//! extent out: (ceil(first_query + queries, steps * heads) - 1) * out_strides[0] + (steps - 1) * out_strides[1] + (heads - 1) * out_strides[2] + VALUE_WIDTH
// Stores the result of a query, NaN if it saw no key; or, if the context is in splits, what attention_merge.wgsl needs of
// each of them. Queries are counted over batch, heads and steps, from the first query of the launch on.
import package::wgsl::lib::nan::{nan};
import super::heads::{VALUE_WIDTH};
import super::sinks::{with_sink};

alias R = f32;

@group(0) @binding(8) var<storage, read_write> parts: array<vec4<f32>>;
@group(0) @binding(8) var<storage, read_write> out: array<vec4<R>>;

// `values` are four elements of the sum of weighted values, `most` is the greatest score, `total` the sum of the weights.
fn store_result(query: u32, split: u32, quad: u32, values: vec4<f32>, most: f32, total: f32) {
  @if(parts) {
    let at = (query * params.splits + split) * (VALUE_WIDTH / 4u + 1u);
    parts[at + quad] = values;
    if (quad == 0u) { parts[at + VALUE_WIDTH / 4u] = vec4(most, total, 0.0, 0.0); }
  }
  @else {
    let i = params.first_query + query;
    let index = vec3(i / params.steps / params.heads, i % params.steps, i / params.steps % params.heads);
    let sum = with_sink(total, most, index.z);
    let mean = select(values / sum, vec4(nan()), sum == 0.0);
    out[dot(index, params.out_strides) / 4u + quad] = vec4<R>(mean);
  }
}
