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

// Where four elements of a query's result are.
fn result_place(query: u32, split: u32, quad: u32) -> u32 {
  @if(parts) return (query * params.splits + split) * (VALUE_WIDTH / 4u + 1u) + quad;
  @else {
    let index = index_of_result(query);
    return dot(index, params.out_strides) / 4u + quad;
  }
}

// (batch, step, head)
fn index_of_result(query: u32) -> vec3<u32> {
  let i = params.first_query + query;
  return vec3(i / params.steps / params.heads, i % params.steps, i / params.steps % params.heads);
}

// Weighted values so far, in the memory of the result.
fn partial_result(query: u32, split: u32, quad: u32) -> vec4<f32> {
  @if(parts) return parts[result_place(query, split, quad)];
  @else return vec4<f32>(out[result_place(query, split, quad)]);
}
fn put_partial_result(query: u32, split: u32, quad: u32, values: vec4<f32>) {
  @if(parts) parts[result_place(query, split, quad)] = values;
  @else out[result_place(query, split, quad)] = vec4<R>(values);
}

// `values` are four elements of the sum of weighted values, `most` is the greatest score, or near it, `total` the sum of the
// weights.
fn store_result(query: u32, split: u32, quad: u32, values: vec4<f32>, most: f32, total: f32) {
  @if(parts) {
    put_partial_result(query, split, quad, values);
    if (quad == 0u) { parts[result_place(query, split, VALUE_WIDTH / 4u)] = vec4(most, total, 0.0, 0.0); }
  }
  @else {
    let sum = with_sink(total, most, index_of_result(query).z);
    out[result_place(query, split, quad)] = vec4<R>(select(values / sum, vec4(nan()), sum == 0.0));
  }
}
