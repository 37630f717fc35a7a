//! use hidden
//! use nan
//! loops: ceil(context, 32) * (1 + 2 * ceil(32 * QUADS, WORKGROUP) + QUADS + 32 + OWN + 32 * (1 + OWN)) + ceil(32 * QUADS, WORKGROUP) + OWN
//! extent q: (groups[2] - 1) * q_strides[0] + (steps - 1) * q_strides[1] + (groups[1] - 1) * q_strides[2] + WIDTH
//! extent k: (groups[2] - 1) * k_strides[0] + (context - 1) * k_strides[1] + (groups[1] - 1) // heads_per_key * k_strides[2] + WIDTH
//! extent v: (groups[2] - 1) * v_strides[0] + (context - 1) * v_strides[1] + (groups[1] - 1) // heads_per_key * v_strides[2] + WIDTH
//! extent mask: (groups[2] - 1) * mask_strides[0] + (groups[1] - 1) * mask_strides[1] + (steps - 1) * mask_strides[2] + (context - 1) * mask_strides[3] + 1
//! extent out: (groups[2] - 1) * out_strides[0] + (steps - 1) * out_strides[1] + (groups[1] - 1) * out_strides[2] + WIDTH
// out = softmax(scale · q·kᵀ + bias) · v for many queries. A workgroup takes 32 queries of one head and
// walks their context in tiles of 32 keys, brought through workgroup memory. Eight invocations share a
// query: each scores four keys of a tile, then gathers an eighth of the values' elements, rescaled by the
// running maximum. A query that sees no key becomes NaN.
alias Q = f32;
alias K = f32;
alias M = f32;
alias R = f32;
const WORKGROUP = 256u;
const WIDTH = 64u; // elements per head, a multiple of 4
const CAUSAL = true; // query s sees the context up to start + s
const QUADS = WIDTH / 4u;
const PITCH = QUADS + 1u; // rows lie one vec4 apart from a multiple, so that reads of a column do not collide
const OWN = (QUADS + 7u) / 8u; // vec4s of the output per invocation, at most

struct Params {
  steps: u32,
  heads_per_key: u32, // query heads that share a key head
  context: i32, // keys to attend to
  start: i32, // position of the first query
  scale: f32,
  q_strides: vec3<u32>, // of (batch, step, head), in elements
  k_strides: vec3<u32>,
  v_strides: vec3<u32>,
  out_strides: vec3<u32>,
  mask_strides: vec4<u32>, // of (batch, head, step, key)
}

@group(0) @binding(0) var<storage, read> q: array<vec4<Q>>;
@group(0) @binding(1) var<storage, read> k: array<vec4<K>>;
@group(0) @binding(2) var<storage, read> v: array<vec4<K>>;
@group(0) @binding(3) var<storage, read> mask: array<M>;
@group(0) @binding(4) var<storage, read_write> out: array<vec4<R>>;
@group(0) @binding(5) var<uniform> params: Params;

var<workgroup> q_tile: array<vec4<f32>, 32u * PITCH>;
var<workgroup> kv_tile: array<vec4<f32>, 32u * PITCH>;
var<workgroup> scores: array<f32, 32u * 33u>;

fn bias(place: vec4<u32>) -> f32 { return f32(mask[dot(place, params.mask_strides)]); }

@compute @workgroup_size(WORKGROUP)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) local: u32) {
  let first = group.x * 32u;
  let head = group.y;
  let batch = group.z;
  let key_head = head / params.heads_per_key;
  let row = local / 8u;
  let part = local % 8u;
  let step = min(first + row, params.steps - 1u);
  var seen = params.context;
  var walked = params.context;
  if (CAUSAL) {
    seen = min(seen, params.start + i32(step) + 1);
    walked = min(walked, params.start + i32(min(first + 32u, params.steps)));
  }
  for (var i = local; i < 32u * QUADS; i += WORKGROUP) {
    let place = vec3(batch, min(first + i / QUADS, params.steps - 1u), head);
    q_tile[i / QUADS * PITCH + i % QUADS] =
      vec4<f32>(q[dot(place, params.q_strides) / 4u + i % QUADS]) * params.scale;
  }

  var most = LOWEST;
  var total = 0.0;
  var gathered = array<vec4<f32>, OWN>();
  for (var key_base = 0u; key_base < u32(walked); key_base += 32u) {
    workgroupBarrier();
    for (var i = local; i < 32u * QUADS; i += WORKGROUP) {
      let key = min(key_base + i / QUADS, u32(params.context) - 1u);
      let at = dot(vec3(batch, key, key_head), params.k_strides) / 4u;
      kv_tile[i / QUADS * PITCH + i % QUADS] = vec4<f32>(k[at + i % QUADS]);
    }
    workgroupBarrier();
    var own = vec4(0.0); // the scores of keys part, part + 8, part + 16 and part + 24
    for (var d = 0u; d < QUADS; d++) {
      let left = q_tile[row * PITCH + d];
      own.x += dot(left, kv_tile[part * PITCH + d]);
      own.y += dot(left, kv_tile[(part + 8u) * PITCH + d]);
      own.z += dot(left, kv_tile[(part + 16u) * PITCH + d]);
      own.w += dot(left, kv_tile[(part + 24u) * PITCH + d]);
    }
    let keys = vec4(key_base + part) + vec4(0u, 8u, 16u, 24u);
    let visible = keys < vec4(u32(seen));
    own += vec4(
      bias(vec4(batch, head, step, min(keys.x, u32(params.context) - 1u))),
      bias(vec4(batch, head, step, min(keys.y, u32(params.context) - 1u))),
      bias(vec4(batch, head, step, min(keys.z, u32(params.context) - 1u))),
      bias(vec4(batch, head, step, min(keys.w, u32(params.context) - 1u))),
    );
    own = select(vec4(LOWEST), own, visible);
    let at = row * 33u + part;
    scores[at] = own.x;
    scores[at + 8u] = own.y;
    scores[at + 16u] = own.z;
    scores[at + 24u] = own.w;
    workgroupBarrier();
    var raised = most;
    for (var c = 0u; c < 32u; c++) { raised = max(raised, scores[row * 33u + c]); }
    let shares = select(vec4(0.0), exp(own - raised), visible & !are_hidden(own));
    let shrink = exp(most - raised);
    most = raised;
    workgroupBarrier();
    scores[at] = shares.x;
    scores[at + 8u] = shares.y;
    scores[at + 16u] = shares.z;
    scores[at + 24u] = shares.w;
    for (var i = local; i < 32u * QUADS; i += WORKGROUP) {
      let key = min(key_base + i / QUADS, u32(params.context) - 1u);
      let from_index = dot(vec3(batch, key, key_head), params.v_strides) / 4u;
      kv_tile[i / QUADS * PITCH + i % QUADS] = vec4<f32>(v[from_index + i % QUADS]);
    }
    workgroupBarrier();
    total *= shrink;
    for (var e = 0u; e < OWN; e++) { gathered[e] *= shrink; }
    for (var c = 0u; c < 32u; c++) {
      let share = scores[row * 33u + c];
      total += share;
      for (var e = 0u; e < OWN; e++) {
        gathered[e] += share * kv_tile[c * PITCH + min(part + 8u * e, QUADS - 1u)];
      }
    }
  }
  if (first + row < params.steps) {
    let out_base = dot(vec3(batch, step, head), params.out_strides) / 4u;
    for (var e = 0u; e < OWN; e++) {
      let mean = select(gathered[e] / total, vec4(nan()), total == 0.0);
      if (part + 8u * e < QUADS) { out[out_base + part + 8u * e] = vec4<R>(mean); }
    }
  }
}
