//! use q4_angles
//! extent bias: columns
//! extent x_scales: rows
//! extent q_out: rows * QUERIES
//! extent k_out: (rows // steps - 1) * out_stride + (place + steps) * KEYS
//! extent v_out: (rows // steps - 1) * out_stride + (place + steps) * KEYS
// What becomes of sums over k whose columns are queries, keys and values, in place of lib/q4_quads.wgsl: as
// lib/q4_turned.wgsl has it, by fours of neighbouring columns. `store_quad` turns neighbours; where the halves of
// a head turn one another, q4_merge_turned.wgsl brings them together.
alias X = f32;
alias D = f32;
alias Q = f32;
alias KeyOut = f32;
alias ValueOut = f32;
const PARTS = 1u;
const OTHERS = 0u;

@group(0) @binding(3) var<storage, read> bias: array<vec4<D>>;
@group(0) @binding(4) var<storage, read> x_scales: array<X>;
@group(0) @binding(6) var<storage, read_write> q_out: array<vec4<Q>>;
@group(0) @binding(7) var<uniform> params: Params;
@group(0) @binding(21) var<storage, read_write> k_out: array<vec4<KeyOut>>;
@group(0) @binding(22) var<storage, read_write> v_out: array<vec4<ValueOut>>;

fn finish(m: u32, n: u32, sum: vec4<f32>) -> vec4<f32> { return sum; }
fn added(m: u32, n: u32) -> vec4<f32> { return vec4<f32>(bias[n / 4u]); }
fn result(m: u32, n: u32, sum: vec4<f32>) -> vec4<f32> { return finish(m, n, sum) + added(m, n); }

// By what four columns are multiplied, and the others of their pairs that are added to them.
struct Angles {
  own: vec4<f32>,
  others: vec4<f32>,
}

fn angles_of(m: u32, n: u32) -> Angles {
  var found = Angles(vec4(1.0), vec4(0.0));
  if (is_turned(n)) {
    let base = angle_base(m, n);
    let element = n % HEAD_WIDTH;
    //! unroll
    for (var e = 0u; e < 4u; e++) {
      let pair = select(element / 2u + e / 2u, element % (ROTARY / 2u) + e, HALVED);
      let by = angle_of(base, pair, select(e % 2u == 1u, element >= ROTARY / 2u, HALVED));
      found.own[e] = by.x;
      found.others[e] = by.y;
    }
  }
  return found;
}

// Four columns turned, each with the other one of its pair.
fn turned(by: Angles, value: vec4<f32>, other: vec4<f32>) -> vec4<f32> {
  return value * by.own + select(other * by.others, vec4(0.0), by.others == vec4(0.0));
}

fn put_quad(part: u32, m: u32, n: u32, value: vec4<f32>) {
  if (n < QUERIES) {
    q_out[(m * QUERIES + n) / 4u] = vec4<Q>(value);
    return;
  }
  let step = u32(params.place) + m % params.steps;
  let to = m / params.steps * params.out_stride + step * KEYS + n - QUERIES;
  if (n < QUERIES + KEYS) {
    k_out[to / 4u] = vec4<KeyOut>(value);
  } else {
    v_out[(to - KEYS) / 4u] = vec4<ValueOut>(value);
  }
}

fn store_quad(part: u32, m: u32, n: u32, sums: vec4<f32>) {
  let value = result(m, n, sums);
  put_quad(part, m, n, turned(angles_of(m, n), value, value.yxwz));
}

// Queries, keys and values have no gates.
fn gated(m: u32, n: u32, gate: vec4<f32>, value: vec4<f32>) -> vec4<f32> { return value; }
fn store_gated(m: u32, n: u32, gate: vec4<f32>, value: vec4<f32>) { }
