//! use index
//! use merge_splits
//! use contexts
//! loops: 2 * splits
//! extent parts: count // WIDTH * splits * (WIDTH + 4)
//! extent places: 2 * ceil(first + count // WIDTH, steps * heads)
//! extent out: (ceil(first + count // WIDTH, steps * heads) - 1) * out_strides[0] + (steps - 1) * out_strides[1] + (heads - 1) * out_strides[2] + WIDTH
// Merges the splits of attention_decode.wgsl or attention_split.wgsl. One invocation computes one
// element of one query.
alias R = f32;
const WORKGROUP = 64u;
const WIDTH = 64u; // elements of a value

struct Params {
  count: u32, // elements of the queries in `parts`
  first: u32, // the first of these queries, counted over batch, heads and steps
  splits: u32, // per query in `parts`
  split: u32, // minimum of keys per split; splits past the context hold no results
  context: i32,
  steps: u32,
  heads: u32,
  out_strides: vec3<u32>, // of (batch, step, head)
}

@group(0) @binding(0) var<storage, read> parts: array<f32>;
@group(0) @binding(1) var<storage, read_write> out: array<R>;
@group(0) @binding(2) var<uniform> params: Params;

@compute @workgroup_size(WORKGROUP)
fn main(@builtin(global_invocation_id) id: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>) {
  let i = flat_index(id, groups);
  if (i >= params.count) { return; }
  let query = params.first + i / WIDTH;
  let step = query % params.steps;
  let head = query / params.steps % params.heads;
  let batch = query / params.steps / params.heads;
  let used = min((keys_of(batch) + params.split - 1u) / params.split, params.splits);
  let base = i / WIDTH * params.splits * (WIDTH + 4u);
  out[dot(vec3(batch, step, head), params.out_strides) + i % WIDTH] = R(merged_element(base, used, i % WIDTH, head));
}
