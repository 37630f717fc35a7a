//! loops: STRIPS * (1 + STRIP_LOADS) + (HEIGHT * WIDTH // 4 + 2 * FLAGS) // WORKGROUP + 2
// The walk of a product over its tiles of matrices (lib/matrix_tile.wgsl). Every step passes STEP k of both factors
// through workgroup memory as halves; meanwhile an invocation's share of the next step is loaded from global memory into
// registers: it begins right after the step before is stored. Right, Sums, multiplied and put_sums are those of
// lib/matrix_cores.wgsl or lib/matrix_emulated.wgsl. The left factor is x in products (the weights in
// convolution_matrix.wgsl), its rows those of the tile; the right one is their weights (its source). A kernel declares
//   STEP, IS_GATED, X_LOADS, W_LOADS   k per step; loads of the left and of the right factor per invocation and step
//   Tile, tile_of, is_tile      the tile of a workgroup, and whether there is one
//   Rows, rows_of               what an invocation's loads have in common in all steps
//   steps_of, fetch_step, Loads the loads of a step
//   store_loads                 stores them as halves; the largest magnitudes so far
//   right_column                the column of a load of the right factor, or, if not IS_ALONG, the first of four
//   is_row                      whether a row of a tile exists
//   float_sums                  four columns of a row, from floats
//   store_columns               finishes four columns; if IS_GATED, with the columns that they gate, half a tile to the right
import super::matrix_tile::{
  FIRST_LOW, HEIGHT, IS_ALONG, IS_CHECKED, MATRICES_OF_SUMS, STRIPS, STRIP_LOADS, STRIP_WIDE, SUBGROUPS, SUM_COUNT,
  SUM_PLANES, StripQuad, TALL, WIDE, WIDTH, WORKGROUP, W_PLANES, X_PLANES, are_in_range, begin_tile, is_in_range,
  left_of, put_left, raise_flag, right_of, strip_column, strip_matrix, strip_quad, strip_row, strip_sums,
};

// The largest magnitudes that an invocation has seen in each of its loads; of right ones for each column.
struct Seen {
  left: array<f32, X_LOADS>,
  right: array<vec4<f32>, W_LOADS>,
}

fn left_place(local: u32, i: u32) -> u32 { return local + i * WORKGROUP; }
fn left_row(local: u32, i: u32) -> u32 { return left_place(local, i) / (STEP / 4u); }
fn is_left(local: u32, i: u32) -> bool {
  return HEIGHT * STEP / 4u % WORKGROUP == 0u || left_place(local, i) < HEIGHT * STEP / 4u;
}

// Stores the loads of the left factor, four k of a row each; the largest magnitudes so far.
fn store_left(loads: array<vec4<f32>, X_LOADS>, local: u32, before: array<f32, X_LOADS>) -> array<f32, X_LOADS> {
  var seen = before;
  //! unroll
  for (var i = 0u; i < X_LOADS; i++) {
    if (is_left(local, i)) {
      put_left(left_row(local, i), left_place(local, i) % (STEP / 4u) * 4u, loads[i]);
      seen[i] = max(seen[i], largest(abs(loads[i])));
    }
  }
  return seen;
}

// The largest magnitudes of a load of the right factor: of four k of a column, or of four columns.
fn seen_right(before: vec4<f32>, value: vec4<f32>) -> vec4<f32> {
  if (IS_ALONG) { return vec4(max(before.x, largest(abs(value))), vec3(0.0)); }
  return max(before, abs(value));
}

// Whether halves hold all factors of the workgroup.
fn is_seen_in_range(seen: Seen, local: u32) -> bool {
  if (!IS_CHECKED) { return true; }
  //! unroll
  for (var level = 1u; level < 4u; level++) {
    //! unroll
    for (var i = 0u; i < X_LOADS; i++) { raise_flag(left_row(local, i), seen.left[i], level); }
    //! unroll
    for (var i = 0u; i < W_LOADS; i++) {
      let place = HEIGHT + right_column(local, i);
      raise_flag(place, seen.right[i].x, level);
      if (!IS_ALONG) {
        //! unroll
        for (var e = 1u; e < 4u; e++) { raise_flag(place + e, seen.right[i][e], level); }
      }
    }
    workgroupBarrier();
  }
  return are_in_range(local);
}

// Whether four columns of a row are outputs, not values of gates.
fn is_stored(tile: Tile, row: u32, column: u32) -> bool {
  return is_row(tile, row) && (!IS_GATED || column < WIDTH / 2u);
}

// Whether halves hold a row and four columns, with the values if these are gates.
fn is_quad_in_range(row: u32, column: u32) -> bool {
  return is_in_range(row, column) && (!IS_GATED || is_in_range(row, column + WIDTH / 2u));
}

@compute @workgroup_size(WORKGROUP)
fn main(
  @builtin(workgroup_id) group: vec3<u32>,
  @builtin(num_workgroups) groups: vec3<u32>,
  @builtin(local_invocation_index) local: u32,
) {
  let tile = tile_of(group, groups);
  if (!is_tile(tile)) { return; }
  let subgroup = local / 32u;
  let rows = rows_of(tile, local);
  let steps = steps_of(tile);
  begin_tile(local);
  var seen = store_loads(fetch_step(tile, rows, 0u, local), local, Seen());
  var loads = fetch_step(tile, rows, min(1u, steps - 1u), local);
  workgroupBarrier();
  //! spread
  var sums: array<Sums, SUM_COUNT>;
  //! spread
  var rights: array<Right, WIDE>;
  //! spread
  var rights_low: array<Right, WIDE>;
  for (var step = 0u; step < steps; step++) {
    //! unroll
    for (var k = 0u; k < STEP; k += 16u) {
      //! unroll
      for (var n = 0u; n < WIDE; n++) {
        rights[n] = right_of(subgroup, 0u, k, n);
        if (W_PLANES == 2u) { rights_low[n] = right_of(subgroup, 1u, k, n); }
      }
      //! unroll
      for (var m = 0u; m < TALL; m++) {
        let left = left_of(subgroup, 0u, k, m);
        if (X_PLANES == 2u) {
          let left_low = left_of(subgroup, 1u, k, m);
          //! unroll
          for (var n = 0u; n < WIDE; n++) {
            sums[FIRST_LOW + m * WIDE + n] = multiplied(left_low, rights[n], sums[FIRST_LOW + m * WIDE + n]);
          }
        }
        //! unroll
        for (var n = 0u; n < WIDE; n++) {
          if (W_PLANES == 2u) {
            sums[FIRST_LOW + m * WIDE + n] = multiplied(left, rights_low[n], sums[FIRST_LOW + m * WIDE + n]);
          }
          sums[m * WIDE + n] = multiplied(left, rights[n], sums[m * WIDE + n]);
        }
      }
    }
    workgroupBarrier();
    seen = store_loads(loads, local, seen);
    // The last step is loaded several times, so that all iterations are alike.
    loads = fetch_step(tile, rows, min(step + 2u, steps - 1u), local);
    workgroupBarrier();
  }
  let is_exact = is_seen_in_range(seen, local);
  for (var strip = 0u; strip < STRIPS; strip++) {
    //! unroll
    for (var i = 0u; i < MATRICES_OF_SUMS; i++) {
      if (strip == i / STRIP_WIDE) {
        put_sums(strip_matrix(subgroup, 0u, i % STRIP_WIDE), sums[i]);
        if (SUM_PLANES == 2u) { put_sums(strip_matrix(subgroup, 1u, i % STRIP_WIDE), sums[FIRST_LOW + i]); }
      }
    }
    workgroupBarrier();
    for (var i = 0u; i < STRIP_LOADS; i++) {
      let at = strip_quad(local, i);
      let row = strip_row(at, strip);
      let column = strip_column(at, strip);
      if (is_stored(tile, row, column) && (is_exact || is_quad_in_range(row, column))) {
        var values: vec4<f32>;
        if (IS_GATED) { // a value is in the same place of the subgroup that is half a tile further on
          values = strip_sums(StripQuad(at.subgroup + SUBGROUPS / 2u, at.row, at.quad));
        }
        store_columns(tile, row, column, strip_sums(at), values);
      }
    }
    workgroupBarrier();
  }
  if (is_exact) { return; }
  for (var i = local; i < HEIGHT * WIDTH / 4u; i += WORKGROUP) {
    let row = i / (WIDTH / 4u);
    let column = i % (WIDTH / 4u) * 4u;
    if (is_stored(tile, row, column) && !is_quad_in_range(row, column)) {
      var values: vec4<f32>;
      if (IS_GATED) { values = float_sums(tile, row, column + WIDTH / 2u); }
      store_columns(tile, row, column, float_sums(tile, row, column), values);
    }
  }
}
