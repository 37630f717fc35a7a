//! use nan
//! use sinks
//! extent out: (ceil(first_query + queries, steps * heads) - 1) * out_strides[0] + (steps - 1) * out_strides[1] + (heads - 1) * out_strides[2] + VALUE_WIDTH
// Stores each query's result, for workgroups that process the whole context; NaN if it saw no key.
alias R = f32;
@group(0) @binding(8) var<storage, read_write> out: array<vec4<R>>;

fn store_result(query: u32, split: u32, quad: u32, values: vec4<f32>, most: f32, total: f32) {
  let i = params.first_query + query;
  let index = vec3(i / params.steps / params.heads, i % params.steps, i / params.steps % params.heads);
  let sum = with_sink(total, most, index.z);
  let mean = select(values / sum, vec4(nan()), sum == 0.0);
  out[dot(index, params.out_strides) / 4u + quad] = vec4<R>(mean);
}
