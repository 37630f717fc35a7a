//! use nan
//! loops: 2 * splits + ceil(WIDTH, WORKGROUP) * (splits + 1)
//! extent parts: groups[0] * splits * (WIDTH + 2)
//! extent out: (ceil(first + groups[0], steps * heads) - 1) * out_strides[0] + (steps - 1) * out_strides[1] + (heads - 1) * out_strides[2] + WIDTH
// Brings the splits of attention_split.wgsl together: Σ values · exp(most - greatest) / Σ total ·
// exp(most - greatest), NaN where a query sees no key. One workgroup takes one query of one head, each
// invocation its elements.
alias R = f32;
const WORKGROUP = 64u;
const WIDTH = 64u;

struct Params {
  first: u32, // query, counted over batch, heads and steps, of those in `parts`
  splits: u32, // per query in `parts`; those past the context are empty
  split: u32, // keys of each
  context: i32,
  steps: u32,
  heads: u32,
  out_strides: vec3<u32>, // of (batch, step, head)
}

@group(0) @binding(0) var<storage, read> parts: array<f32>;
@group(0) @binding(1) var<storage, read_write> out: array<R>;
@group(0) @binding(2) var<uniform> params: Params;

@compute @workgroup_size(WORKGROUP)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) local: u32) {
  let i = params.first + group.x;
  let place = vec3(i / params.steps / params.heads, i % params.steps, i / params.steps % params.heads);
  let out_base = dot(place, params.out_strides);
  let base = group.x * params.splits * (WIDTH + 2u);
  let used = min((u32(params.context) + params.split - 1u) / params.split, params.splits);
  var most = LOWEST;
  for (var s = 0u; s < used; s++) { most = max(most, parts[base + s * (WIDTH + 2u)]); }
  var total = 0.0;
  for (var s = 0u; s < used; s++) {
    let at = base + s * (WIDTH + 2u);
    total += parts[at + 1u] * exp(parts[at] - most);
  }
  for (var d = local; d < WIDTH; d += WORKGROUP) {
    var sum = 0.0;
    for (var s = 0u; s < used; s++) {
      let at = base + s * (WIDTH + 2u);
      sum += parts[at + 2u + d] * exp(parts[at] - most);
    }
    out[out_base + d] = R(select(sum / total, nan(), total == 0.0));
  }
}
