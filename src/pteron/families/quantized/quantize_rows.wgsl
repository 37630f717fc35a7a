//! use rows
//! use extremes
//! use int8_steps
//! loops: 24
//! extent x: 8 * rows * WORDS
//! extent gain: 8 * WORDS
//! extent x_scales: 2 * rows
//! extent words: 2 * rows * WORDS
// Rows of x as int8, each by a scale and a zero point that fit it as choose_qparams.wgsl finds them, after an
// RMS norm where there is a gain: clamp(round(y / scale) + zero, -128, 127), y = x · gain / sqrt(mean(x²) + eps).
//
// LANES invocations share a row and hold it, eight neighbours a turn, of which they leave a pair of words, as
// q4_quantize.wgsl.
alias G = f32;
const WORDS = 8u; // eights of a row
const IS_NORMED = false;
const EPS = 1e-5; // of the norm
const LEAST = 1.1754943508222875e-38; // that a scale can be
const TURNS = (WORDS + LANES - 1u) / LANES;

struct Params {
  rows: u32,
}

@group(0) @binding(0) var<storage, read> x: array<vec4<f32>>;
@group(0) @binding(1) var<storage, read> gain: array<vec4<G>>;
@group(0) @binding(2) var<storage, read_write> x_scales: array<f32>; // of all rows, then their zero points
@group(0) @binding(4) var<storage, read_write> words: array<vec2<u32>>;
@group(0) @binding(5) var<uniform> params: Params;

// What a norm does besides scaling.
fn weighted(quad: u32, value: vec4<f32>) -> vec4<f32> { return value * vec4<f32>(gain[quad]); }

fn greatest(value: vec4<f32>) -> f32 { return max(max(value.x, value.y), max(value.z, value.w)); }

@compute @workgroup_size(WORKGROUP)
fn main(
  @builtin(workgroup_id) group: vec3<u32>,
  @builtin(num_workgroups) groups: vec3<u32>,
  @builtin(local_invocation_index) local: u32,
) {
  let row = row_index(group, groups, local);
  let lane = local % LANES;
  let m = min(row, params.rows - 1u);
  var held: array<vec4<f32>, 2u * TURNS>;
  //! unroll
  for (var i = 0u; i < 2u * TURNS; i++) {
    let word = lane + i / 2u * LANES;
    if (word < WORDS) { held[i] = x[2u * (m * WORDS + word) + i % 2u]; }
  }
  if (IS_NORMED) {
    var squares = 0.0;
    //! unroll
    for (var i = 0u; i < 2u * TURNS; i++) { squares += dot(held[i], held[i]); }
    let factor = inverseSqrt(row_sum(squares, local) / f32(8u * WORDS) + EPS);
    //! unroll
    for (var i = 0u; i < 2u * TURNS; i++) {
      held[i] = weighted(2u * min(lane + i / 2u * LANES, WORDS - 1u) + i % 2u, held[i] * factor);
    }
  }
  var most = 0.0;
  var least = 0.0;
  //! unroll
  for (var i = 0u; i < 2u * TURNS; i++) {
    most = max(most, greatest(held[i]));
    least = min(least, -greatest(-held[i]));
  }
  most = row_max(most, local);
  least = -row_max(-least, local);
  let step = max(scale_between(least, most, -128.0, 127.0), LEAST);
  let zero = zero_between(least, step, -128.0, 127.0);
  if (row >= params.rows) { return; }
  if (lane == 0u) {
    x_scales[row] = step;
    x_scales[params.rows + row] = zero;
  }
  //! unroll
  for (var i = 0u; i < TURNS; i++) {
    let word = lane + i * LANES;
    if (word < WORDS) {
      let low = vec4<i32>(int8_steps(held[2u * i], step, zero));
      let high = vec4<i32>(int8_steps(held[2u * i + 1u], step, zero));
      words[row * WORDS + word] = vec2(pack4xI8(vec4(low.xz, high.xz)), pack4xI8(vec4(low.yw, high.yw)));
    }
  }
}
