//! extent b: ((MATRICES or batch) - 1) * depth * columns + (depth - 1) * b_row + (columns - 1) * b_column + 1
//! extent experts: batch
// The second factor of a matrix product (lib/matmul.wgsl), one by one or by quads: matrix z of `batch`; or matrix experts[z]
// of MATRICES; or each of them in turn; or one matrix of 4-bit weights.
import super::matmul::{IS_WHOLE, params};
@if(b_words) import super::matmul_b_q4::{load_b};

alias B = f32;
alias G = i32;
override B_ALONG: bool = true; // k runs fastest; or n does
override B_QUADS: bool = false; // what runs fastest is a multiple of four: a quad is one load
override MATRICES: u32 = 0u;
override IN_TURN: bool = false;

@if(B_QUADS) @group(0) @binding(1) var<storage, read> b: array<vec4<B>>;
@elif(!b_words) @group(0) @binding(1) var<storage, read> b: array<B>;
@group(0) @binding(6) var<storage, read> experts: array<G>;

fn matrix_of(z: u32) -> u32 {
  @if(experts) return min(u32(experts[z]), MATRICES - 1u);
  @elif(IN_TURN) return z % MATRICES;
  @else return z;
}

@if(!B_QUADS && !b_words)
fn load_b(z: u32, k: u32, n: u32) -> f32 {
  return f32(b[matrix_of(z) * params.depth * params.columns + k * params.b_row + n * params.b_column]);
}

// Zero past the last k. Past the last n, the last.
@if(!B_QUADS)
fn element_of_b(z: u32, k: u32, n: u32) -> f32 {
  let value = load_b(z, min(k, params.depth - 1u), min(n, params.columns - 1u));
  return select(0.0, value, k < params.depth);
}

// The same for four k or, if n runs fastest, four n.
fn quad_of_b(z: u32, k: u32, n: u32) -> vec4<f32> {
  @if(B_QUADS) {
    let there = select(min(k, params.depth - select(1u, 4u, B_ALONG)), k, IS_WHOLE);
    let along = (z * params.columns + min(n, params.columns - 1u)) * params.depth + there;
    let across = (z * params.depth + there) * params.columns + min(n, params.columns - 4u);
    let value = vec4<f32>(b[select(across, along, B_ALONG) / 4u]);
    return select(vec4(0.0), value, IS_WHOLE || k < params.depth);
  }
  @else {
    let next = select(vec2(0u, 1u), vec2(1u, 0u), B_ALONG);
    return vec4(
      element_of_b(z, k, n),
      element_of_b(z, k + next.x, n + next.y),
      element_of_b(z, k + 2u * next.x, n + 2u * next.y),
      element_of_b(z, k + 3u * next.x, n + 3u * next.y),
    );
  }
}
