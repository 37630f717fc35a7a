//! loops: ceil(span, BLOCK) + ceil(span, 4) + ARRAYS * (1 + TILE)
//! extent a: rows * depth
//! extent a_rows: ROWS * span
//! extent b_a: 4 * blocks * span
//! extent b_b: 4 * blocks * span
//! extent b_c: 4 * blocks * span
//! extent b_d: 4 * blocks * span
//! extent b_e: 4 * blocks * span
//! extent b_f: 4 * blocks * span
//! extent b_g: 4 * blocks * span
//! extent b_h: 4 * blocks * span
// A matrix product (lib/matmul.wgsl) with constant weights, for software adapters: weights are uniform arrays, which load eight
// times as fast as storage buffers there. So are rows of a, if they fit (a_rows).
//
// One invocation computes TILE rows of a column in each of eight arrays. Invocations of a workgroup have adjacent columns of the
// same rows: of the lanes of a subgroup, each of the first four loads one of four x, and all read them. An invocation adds up
// BLOCK products at a time, then the blocks.
//
// An array holds [block][k][column], four columns a block. A launch computes part `part` of k.
import package::wgsl::lib::index::{flat_index};
import package::wgsl::lib::lanes::{of_four_lanes};
import super::lib::matmul::{params};
import super::lib::matmul_store::{store};

const WORKGROUP = 8u; // the lanes of a vector, or of two
override TILE: u32 = 8u;
const BLOCK = 64u;
const ARRAYS = 8u;
override ROOM: u32 = 64u; // vec4s of an array
override ROWS: u32 = 8u; // of a_rows, a multiple of TILE
override A_ROOM: u32 = 8u; // vec4s of a_rows

@group(0) @binding(0) var<storage, read> a: array<f32>;
@group(0) @binding(9) var<uniform> b_a: array<vec4<f32>, ROOM>;
@group(0) @binding(10) var<uniform> b_b: array<vec4<f32>, ROOM>;
@group(0) @binding(11) var<uniform> b_c: array<vec4<f32>, ROOM>;
@group(0) @binding(12) var<uniform> b_d: array<vec4<f32>, ROOM>;
@group(0) @binding(13) var<uniform> b_e: array<vec4<f32>, ROOM>;
@group(0) @binding(14) var<uniform> b_f: array<vec4<f32>, ROOM>;
@group(0) @binding(15) var<uniform> b_g: array<vec4<f32>, ROOM>;
@group(0) @binding(16) var<uniform> b_h: array<vec4<f32>, ROOM>;
@group(0) @binding(17) var<uniform> a_rows: array<vec4<f32>, A_ROOM>;

// Zero past the last k.
fn x_of_row(m: u32, k: u32, lane: u32) -> f32 {
  @if(a_rows) return a_rows[(min(m, ROWS - 1u) * params.span + k) / 4u][lane];
  @else {
    let at = params.part * params.span + k + lane;
    return select(0.0, a[min(m, params.rows - 1u) * params.depth + min(at, params.depth - 1u)], at < params.depth);
  }
}

fn is_row(m: u32) -> bool {
  @if(a_rows) return m < ROWS && params.first_row + m < params.rows;
  @else return m < params.rows;
}

fn weight(array: u32, at: u32, column: u32) -> f32 {
  switch (array) {
    case 0u: { return b_a[at][column]; }
    case 1u: { return b_b[at][column]; }
    case 2u: { return b_c[at][column]; }
    case 3u: { return b_d[at][column]; }
    case 4u: { return b_e[at][column]; }
    case 5u: { return b_f[at][column]; }
    case 6u: { return b_g[at][column]; }
    default: { return b_h[at][column]; }
  }
}

@compute @workgroup_size(WORKGROUP)
fn main(
  @builtin(global_invocation_id) id: vec3<u32>,
  @builtin(num_workgroups) groups: vec3<u32>,
  @builtin(subgroup_invocation_id) subgroup_lane: u32,
) {
  let lane = subgroup_lane % 4u;
  let i = flat_index(id, groups);
  let column = i % 4u;
  let lanes = (4u * params.blocks + WORKGROUP - 1u) / WORKGROUP * WORKGROUP; // of the same rows
  let first = i / lanes * TILE;
  let place = i % lanes / 4u;
  let block = min(place, params.blocks - 1u);
  var sums = array<array<f32, ARRAYS>, TILE>();
  for (var k_block = 0u; k_block < params.span; k_block += BLOCK) {
    var part = array<array<f32, ARRAYS>, TILE>();
    for (var k = k_block; k < min(k_block + BLOCK, params.span); k += 4u) {
      var x = array<vec4<f32>, TILE>();
      //! unroll
      for (var t = 0u; t < TILE; t++) { x[t] = of_four_lanes(x_of_row(first + t, k, lane)); }
      //! unroll
      for (var c = 0u; c < ARRAYS; c++) {
        let at = block * params.span + k;
        let w = vec4(weight(c, at, column), weight(c, at + 1u, column), weight(c, at + 2u, column), weight(c, at + 3u, column));
        //! unroll
        for (var t = 0u; t < TILE; t++) {
          let four = x[t] * w;
          part[t][c] += (four.x + four.y) + (four.z + four.w);
        }
      }
    }
    //! unroll
    for (var t = 0u; t < TILE; t++) {
      //! unroll
      for (var c = 0u; c < ARRAYS; c++) { sums[t][c] += part[t][c]; }
    }
  }
  if (place > block) { return; }
  // Drivers compile for seconds where there is a copy of `store` for each sum. Sums are picked by comparisons, and bounds that
  // are not known when compiled keep the loops.
  for (var c = 0u; c < min(ARRAYS, params.columns); c++) {
    var column_sums = array<f32, TILE>();
    //! unroll
    for (var other = 0u; other < ARRAYS; other++) {
      //! unroll
      for (var t = 0u; t < TILE; t++) { column_sums[t] = select(column_sums[t], sums[t][other], c == other); }
    }
    let n = 4u * (c * params.blocks + block) + column;
    for (var row = 0u; row < TILE && is_row(first + row) && n < params.columns; row++) {
      var sum = 0.0;
      //! unroll
      for (var t = 0u; t < TILE; t++) { sum = select(sum, column_sums[t], row == t); }
      store(params.part, params.first_row + first + row, n, sum);
    }
  }
}
