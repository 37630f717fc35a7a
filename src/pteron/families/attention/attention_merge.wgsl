// Brings the splits of attention_split.wgsl together: Σ values · exp(most - greatest) / Σ total ·
// exp(most - greatest). One workgroup takes one query of one head, each invocation its elements.
alias R = f32;
const WORKGROUP = 64u;
const WIDTH = 64u;

struct Params {
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
  let i = group.x;
  let place = vec3(i / params.steps / params.heads, i % params.steps, i / params.steps % params.heads);
  let out_base = dot(place, params.out_strides);
  let first = i * params.splits * (WIDTH + 2u);
  let used = (u32(params.context) + params.split - 1u) / params.split;
  var most = -3.4028234e38;
  for (var s = 0u; s < used; s++) { most = max(most, parts[first + s * (WIDTH + 2u)]); }
  var total = 0.0;
  for (var s = 0u; s < used; s++) {
    let at = first + s * (WIDTH + 2u);
    total += parts[at + 1u] * exp(parts[at] - most);
  }
  for (var d = local; d < WIDTH; d += WORKGROUP) {
    var sum = 0.0;
    for (var s = 0u; s < used; s++) {
      let at = first + s * (WIDTH + 2u);
      sum += parts[at + 2u + d] * exp(parts[at] - most);
    }
    out[out_base + d] = R(sum / total);
  }
}
