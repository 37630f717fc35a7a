//! use index
// out = softmax(scale · q·kᵀ + bias) · v for each query. One invocation walks the context of one query of
// one head once, keeping the running maximum and rescaling what it has gathered: no barriers, no scratch
// memory. Tensors are addressed by the strides of (batch, step, head); a head's elements are contiguous.
alias Q = f32;
alias K = f32;
alias M = f32;
alias R = f32;
const WORKGROUP = 64u;
const WIDTH = 64u; // elements per head
const CAUSAL = true; // query s sees the context up to start + s

struct Params {
  queries: u32, // batch · heads · steps
  steps: u32,
  heads: u32,
  heads_per_key: u32, // query heads that share a key head
  context: i32, // keys to attend to
  start: i32, // position of the first query
  scale: f32,
  q_strides: vec3<u32>,
  k_strides: vec3<u32>,
  v_strides: vec3<u32>,
  out_strides: vec3<u32>,
  mask_strides: vec4<u32>, // of (batch, head, step, key)
}

@group(0) @binding(0) var<storage, read> q: array<Q>;
@group(0) @binding(1) var<storage, read> k: array<K>;
@group(0) @binding(2) var<storage, read> v: array<K>;
@group(0) @binding(3) var<storage, read> mask: array<M>;
@group(0) @binding(4) var<storage, read_write> out: array<R>;
@group(0) @binding(5) var<uniform> params: Params;

fn bias(place: vec4<u32>) -> f32 { return f32(mask[dot(place, params.mask_strides)]); }

@compute @workgroup_size(WORKGROUP)
fn main(@builtin(global_invocation_id) id: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>) {
  let i = flat_index(id, groups);
  if (i >= params.queries) { return; }
  let step = i % params.steps;
  let head = i / params.steps % params.heads;
  let batch = i / params.steps / params.heads;
  let q_base = dot(vec3(batch, step, head), params.q_strides);
  let k_base = dot(vec3(batch, 0u, head / params.heads_per_key), params.k_strides);
  let v_base = dot(vec3(batch, 0u, head / params.heads_per_key), params.v_strides);
  let out_base = dot(vec3(batch, step, head), params.out_strides);
  var seen = params.context;
  if (CAUSAL) { seen = min(seen, params.start + i32(step) + 1); }

  var most = -3.4028234e38;
  var total = 0.0;
  var gathered = array<f32, WIDTH>();
  for (var key = 0u; key < u32(seen); key++) {
    let k_row = k_base + key * params.k_strides.y;
    var score = 0.0;
    for (var d = 0u; d < WIDTH; d++) { score += f32(q[q_base + d]) * f32(k[k_row + d]); }
    score = score * params.scale + bias(vec4(batch, head, step, key));
    let raised = max(most, score);
    let shrink = exp(most - raised);
    let share = exp(score - raised);
    let v_row = v_base + key * params.v_strides.y;
    for (var d = 0u; d < WIDTH; d++) { gathered[d] = gathered[d] * shrink + share * f32(v[v_row + d]); }
    total = total * shrink + share;
    most = raised;
  }
  for (var d = 0u; d < WIDTH; d++) { out[out_base + d] = R(gathered[d] / total); }
}
