//! loops: STEPS + TALL
// A product with 4-bit or 8-bit weights (lib/q4.wgsl) by tiles (lib/tile.wgsl), over PART words; PART is a multiple of
// STEP_WORDS. Every step passes STEP columns k of x and of the unpacked, scaled weights through workgroup memory, both
// with k outermost, so that an invocation reads its rows and columns as vec4s; meanwhile its share of the next step is
// loaded from global memory into registers. lib/tile_rows.wgsl passes the sums on to lib/q4_result.wgsl, where an epilogue
// goes (`result`).
import super::lib::q4::{PART, PARTS, scaled, unpack};
import super::lib::tile::{Tile, tile_of};
import super::lib::tile_rows::{place_of, store_row};
import package::wgsl::lib::tile_lanes::{ACROSS, DOWN, HEIGHT, QUADS_TALL, TALL, WIDE, WIDTH, WORKGROUP, position_of};
import super::lib::q4_loads::{Loads, STEP, STEPS, STEP_QUADS, STEP_WORDS, W_COUNT, W_LOADS, X_COUNT, X_LOADS, fetch, rows_of};

// One vec4 of padding per k avoids bank conflicts between stores of several k.
const X_PITCH = HEIGHT / 4u + 1u;
const W_PITCH = WIDTH / 4u + 1u;

var<workgroup> x_tile: array<vec4<f32>, STEP * X_PITCH>;
var<workgroup> w_tile: array<vec4<f32>, STEP * W_PITCH>;

// Unpacks an invocation's share of a step and stores it in workgroup memory.
fn store_loads(loads: Loads, local: u32) {
  //! unroll
  for (var i = 0u; i < X_LOADS; i++) {
    let at = local + i * WORKGROUP;
    if (X_COUNT % WORKGROUP == 0u || at < X_COUNT) {
      let m = at / STEP_QUADS;
      //! unroll
      for (var e = 0u; e < 4u; e++) {
        x_tile[(at % STEP_QUADS * 4u + e) * X_PITCH + m / 4u][m % 4u] = loads.x[i][e];
      }
    }
  }
  //! unroll
  for (var i = 0u; i < W_LOADS; i++) {
    let at = local + i * WORKGROUP;
    if (W_COUNT % WORKGROUP == 0u || at < W_COUNT) {
      let n = at / STEP_WORDS;
      let low = scaled(unpack(loads.words[i], 0u), loads.scales[i], loads.least[i]);
      let high = scaled(unpack(loads.words[i], 4u), loads.scales[i], loads.least[i]);
      //! unroll
      for (var e = 0u; e < 4u; e++) {
        w_tile[(at % STEP_WORDS * 8u + e) * W_PITCH + n / 4u][n % 4u] = low[e];
        w_tile[(at % STEP_WORDS * 8u + e + 4u) * W_PITCH + n / 4u][n % 4u] = high[e];
      }
    }
  }
}

@compute @workgroup_size(WORKGROUP)
fn main(
  @builtin(workgroup_id) group: vec3<u32>,
  @builtin(num_workgroups) groups: vec3<u32>,
  @builtin(local_invocation_index) local: u32,
) {
  let tile = tile_of(group, groups);
  if (tile.part >= PARTS || tile.m >= tile.end) { return; }
  let position = position_of(local); // its first quad of columns, and of rows
  let rows = rows_of(tile, local);
  let first = tile.part * PART;
  var loads = fetch(rows, first, local);
  store_loads(loads, local);
  workgroupBarrier();
  // Sums of an invocation's first quad of columns, and of the second, used if WIDE is 8.
  //! spread
  var sums: array<vec4<f32>, TALL>;
  //! spread
  var sums_second: array<vec4<f32>, TALL>;
  for (var step = 0u; step < STEPS; step++) {
    // The last step is loaded twice, so that all iterations are alike.
    loads = fetch(rows, first + min(step + 1u, STEPS - 1u) * STEP_WORDS, local);
    //! unroll
    for (var k = 0u; k < STEP; k++) {
      let right = w_tile[k * W_PITCH + position.x];
      let right_second = w_tile[k * W_PITCH + position.x + (WIDE / 4u - 1u) * ACROSS];
      //! unroll
      for (var q = 0u; q < QUADS_TALL; q++) {
        let left = x_tile[k * X_PITCH + position.y + q * DOWN];
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
  // Four rows are unrolled. More rows use a loop: smaller code takes less time to fetch.
  if (TALL == 4u) {
    //! unroll
    for (var t = 0u; t < 4u; t++) { store_row(tile, position, t, sums[t], sums_second[t]); }
    return;
  }
  for (var t = 0u; t < TALL && place_of(tile, position, t) < tile.end; t++) {
    var quad: vec4<f32>;
    var quad_second: vec4<f32>;
    //! unroll
    for (var i = 0u; i < TALL; i++) {
      if (t == i) {
        quad = sums[i];
        quad_second = sums_second[i];
      }
    }
    store_row(tile, position, t, quad, quad_second);
  }
}
