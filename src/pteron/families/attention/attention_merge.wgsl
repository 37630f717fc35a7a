//! loops: 2 * splits
//! extent parts: count // VALUE_WIDTH * splits * (VALUE_WIDTH + 4)
//! extent places: 2 * ceil(first + count // VALUE_WIDTH, steps * heads)
//! extent out: (ceil(first + count // VALUE_WIDTH, steps * heads) - 1) * out_strides[0] + (steps - 1) * out_strides[1] + (heads - 1) * out_strides[2] + VALUE_WIDTH
// Merges the splits of a context, from other kernels of attention:
//
//     out = Σ values · exp(most - greatest) / Σ total · exp(most - greatest)
//
// For each (query, split), `parts` holds VALUE_WIDTH sums of weighted values, the maximum score `most`, the sum of the
// weights `total`, and two unused floats; `greatest` is the maximum of all splits. One invocation computes one element of
// one query, NaN if the query saw no key.
import package::wgsl::lib::index::{flat_index};
import package::wgsl::lib::nan::{LOWEST, nan};
import super::lib::heads::{VALUE_WIDTH};
import super::lib::contexts::{keys_of};
import super::lib::sinks::{with_sink};

alias R = f32;
const WORKGROUP = 64u;

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
  let query = params.first + i / VALUE_WIDTH;
  let step = query % params.steps;
  let head = query / params.steps % params.heads;
  let batch = query / params.steps / params.heads;
  let used = min((keys_of(batch) + params.split - 1u) / params.split, params.splits);
  let base = i / VALUE_WIDTH * params.splits * (VALUE_WIDTH + 4u);
  let element = i % VALUE_WIDTH;
  let to = dot(vec3(batch, step, head), params.out_strides) + element;
  out[to] = R(merged_element(base, used, element, head));
}

// An element of a query's result, merged from its `used` splits at `base`. Every operation is rounded as in the quantized
// family's lib/x_source_splits.wgsl.
fn merged_element(base: u32, used: u32, element: u32, head: u32) -> f32 {
  var most = LOWEST;
  for (var s = 0u; s < used; s++) { most = max(most, parts[base + s * (VALUE_WIDTH + 4u) + VALUE_WIDTH]); }
  var sum = 0.0;
  var total = 0.0;
  for (var s = 0u; s < used; s++) {
    let at = base + s * (VALUE_WIDTH + 4u);
    let weight = exp(parts[at + VALUE_WIDTH] - most);
    sum = fma(weight, parts[at + element], sum);
    total = fma(weight, parts[at + VALUE_WIDTH + 1u], total);
  }
  total = with_sink(total, most, head);
  return sum * select(1.0 / total, nan(), total == 0.0);
}
