//! loops: ceil(span, STEP) + TALL
// A matrix product (lib/matmul.wgsl) by tiles (lib/tile_lanes.wgsl, lib/matmul_loads.wgsl). Every step passes STEP k of a
// and of b through workgroup memory, both with k outermost, so that an invocation reads its rows and columns as vec4s;
// meanwhile its share of the next step is loaded from global memory into registers.
import package::wgsl::lib::tile_lanes::{ACROSS, DOWN, HEIGHT, QUADS_TALL, TALL, WIDE, WIDTH, WORKGROUP, position_of};
import super::lib::matmul::{params, part_of};
import super::lib::matmul_a::{A_ALONG};
import super::lib::matmul_b::{B_ALONG};
import super::lib::matmul_loads::{A_LOADS, B_LOADS, Loads, STEP, fetch, quad_at, step_count, tile_of};
import super::lib::matmul_store::{store_quad};

// One vec4 of padding per k avoids bank conflicts between stores of several k.
const A_PITCH = HEIGHT / 4u + 1u;
const B_PITCH = WIDTH / 4u + 1u;

var<workgroup> a_tile: array<vec4<f32>, STEP * A_PITCH>;
var<workgroup> b_tile: array<vec4<f32>, STEP * B_PITCH>;

// Stores the share in workgroup memory.
fn store_loads(loads: Loads, local: u32) {
  //! unroll
  for (var i = 0u; i < A_LOADS; i++) {
    let at = quad_at(local + i * WORKGROUP, HEIGHT, A_ALONG);
    let is_inside = HEIGHT * STEP / 4u % WORKGROUP == 0u || local + i * WORKGROUP < HEIGHT * STEP / 4u;
    if (is_inside && A_ALONG) {
      //! unroll
      for (var e = 0u; e < 4u; e++) { a_tile[(at.y + e) * A_PITCH + at.x / 4u][at.x % 4u] = loads.a[i][e]; }
    }
    if (is_inside && !A_ALONG) { a_tile[at.y * A_PITCH + at.x / 4u] = loads.a[i]; }
  }
  //! unroll
  for (var i = 0u; i < B_LOADS; i++) {
    let at = quad_at(local + i * WORKGROUP, WIDTH, B_ALONG);
    let is_inside = WIDTH * STEP / 4u % WORKGROUP == 0u || local + i * WORKGROUP < WIDTH * STEP / 4u;
    if (is_inside && B_ALONG) {
      //! unroll
      for (var e = 0u; e < 4u; e++) { b_tile[(at.y + e) * B_PITCH + at.x / 4u][at.x % 4u] = loads.b[i][e]; }
    }
    if (is_inside && !B_ALONG) { b_tile[at.y * B_PITCH + at.x / 4u] = loads.b[i]; }
  }
}

@compute @workgroup_size(WORKGROUP)
fn main(
  @builtin(workgroup_id) group: vec3<u32>,
  @builtin(num_workgroups) groups: vec3<u32>,
  @builtin(local_invocation_index) local: u32,
) {
  let tile = tile_of(group, groups);
  if (tile.slice >= params.batch * params.parts) { return; }
  let position = position_of(local);
  let first = part_of(tile.slice) * params.span;
  let steps = step_count(min(params.span, params.depth - first));
  var loads = fetch(tile, first, local);
  store_loads(loads, local);
  workgroupBarrier();
  // Sums of an invocation's first quad of columns, and of the second, used if WIDE is 8.
  //! spread
  var sums: array<vec4<f32>, TALL>;
  //! spread
  var sums_second: array<vec4<f32>, TALL>;
  for (var step = 0u; step < steps; step++) {
    // The last step is loaded twice, so that all iterations are alike.
    loads = fetch(tile, first + min(step + 1u, steps - 1u) * STEP, local);
    //! unroll
    for (var k = 0u; k < STEP; k++) {
      let right = b_tile[k * B_PITCH + position.x];
      let right_second = b_tile[k * B_PITCH + position.x + (WIDE / 4u - 1u) * ACROSS];
      //! unroll
      for (var q = 0u; q < QUADS_TALL; q++) {
        let left = a_tile[k * A_PITCH + position.y + q * DOWN];
        //! unroll
        for (var e = 0u; e < 4u; e++) {
          sums[4u * q + e] = fma(vec4(left[e]), right, sums[4u * q + e]);
          if (WIDE == 8u) {
            sums_second[4u * q + e] = fma(vec4(left[e]), right_second, sums_second[4u * q + e]);
          }
        }
      }
    }
    workgroupBarrier();
    store_loads(loads, local);
    workgroupBarrier();
  }
  for (var t = 0u; t < TALL; t++) {
    let m = tile.m + (position.y + t / 4u * DOWN) * 4u + t % 4u;
    if (m >= params.rows) { return; }
    var quad: vec4<f32>;
    var quad_second: vec4<f32>;
    //! unroll
    for (var i = 0u; i < TALL; i++) {
      if (t == i) {
        quad = sums[i];
        quad_second = sums_second[i];
      }
    }
    let n = tile.n + position.x * 4u;
    store_quad(tile.slice, m, n, quad);
    if (WIDE == 8u) { store_quad(tile.slice, m, n + ACROSS * 4u, quad_second); }
  }
}
