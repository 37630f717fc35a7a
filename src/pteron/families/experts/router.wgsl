//! loops: ceil(QUADS, LANES) + 16 * TALL
//! extent x: 4 * rows * QUADS
//! extent gain: 4 * QUADS
//! extent matrix: 4 * columns * QUADS
//! extent bias: columns
//! extent logits: rows * columns
// logits[m, n] = Σ x[m, k] · gain[k] · matrix[n, k] / √(mean of x² + EPS) + bias[n]: an RMS norm, if there is a gain, and
// the product of a router. LANES invocations share column n of TALL rows.
import package::wgsl::lib::rows::{LANES, WORKGROUP, row_index, row_sum};

alias X = f32;
alias G = f32;
alias W = f32;
alias D = f32;
alias R = f32;
override QUADS: u32 = 16u; // vec4s of a row
override TALL: u32 = 1u;
override EPS: f32 = 1e-5; // of the norm

struct Params {
  rows: u32,
  columns: u32,
}

@group(0) @binding(0) var<storage, read> x: array<vec4<X>>;
@group(0) @binding(1) var<storage, read> gain: array<vec4<G>>;
@group(0) @binding(2) var<storage, read> matrix: array<vec4<W>>;
@group(0) @binding(3) var<storage, read> bias: array<D>;
@group(0) @binding(4) var<storage, read_write> logits: array<R>;
@group(0) @binding(5) var<uniform> params: Params;

fn weighted(quad: u32, value: vec4<f32>) -> vec4<f32> {
  @if(gain) return value * vec4<f32>(gain[quad]);
  @else return value;
}

fn added(n: u32) -> f32 {
  @if(bias) return f32(bias[n]);
  @else return 0.0;
}

@compute @workgroup_size(WORKGROUP)
fn main(
  @builtin(workgroup_id) group: vec3<u32>,
  @builtin(num_workgroups) groups: vec3<u32>,
  @builtin(local_invocation_index) local: u32,
) {
  let i = row_index(group, groups, local);
  let lane = local % LANES;
  let n = i % params.columns;
  let first = i / params.columns * TALL;
  var sums: array<f32, TALL>;
  @if(gain) var squares: array<f32, TALL>;
  for (var quad = lane; quad < QUADS; quad += LANES) {
    let right = weighted(quad, vec4<f32>(matrix[n * QUADS + quad]));
    //! unroll
    for (var t = 0u; t < TALL; t++) {
      let left = vec4<f32>(x[min(first + t, params.rows - 1u) * QUADS + quad]);
      sums[t] += dot(left, right);
      @if(gain) squares[t] += dot(left, left);
    }
  }
  //! unroll
  for (var t = 0u; t < TALL; t++) {
    var sum = row_sum(sums[t], local);
    @if(gain) sum *= inverseSqrt(row_sum(squares[t], local) / f32(4u * QUADS) + EPS);
    if (lane == 0u && first + t < params.rows) { logits[(first + t) * params.columns + n] = R(sum + added(n)); }
  }
}
