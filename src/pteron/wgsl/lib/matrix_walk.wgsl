//! use matrix_tile
//! loops: TALL * (1 + STRIP_LOADS) + HEIGHT * WIDTH // (4 * WORKGROUP)
// The walk of a product over its tiles of matrices (lib/matrix_tile.wgsl). Every step passes STEP k of both factors
// through workgroup memory as halves; meanwhile an invocation's share of the next step is loaded from global memory into
// registers. A kernel declares
//   Tile, tile_of, is_tile      the tile of a workgroup, and whether there is one
//   Rows, rows_of               what an invocation's loads have in common in all steps
//   steps_of, fetch_step, Loads the loads of a step
//   store_loads                 stores them as halves; the largest factors so far
//   is_row                      whether a row of a tile exists
//   float_sums                  four columns of a row, from floats
//   store_columns               finishes four columns; if IS_GATED with their values, which are half a tile further on
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
  var loads = fetch_step(tile, rows, 0u, local);
  var seen = store_loads(loads, local, Seen(vec4(0.0), vec4(0.0)));
  workgroupBarrier();
  //! spread
  var sums: array<Sums, MATRICES_OF_SUMS>;
  //! spread
  var rights: array<Right, WIDE>;
  //! spread
  var rights_low: array<Right, WIDE>;
  for (var step = 0u; step < steps; step++) {
    // The last step is loaded twice, so that all iterations are alike.
    loads = fetch_step(tile, rows, min(step + 1u, steps - 1u), local);
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
            sums[m * WIDE + n] = multiplied(left_low, rights[n], sums[m * WIDE + n]);
          }
        }
        //! unroll
        for (var n = 0u; n < WIDE; n++) {
          if (W_PLANES == 2u) { sums[m * WIDE + n] = multiplied(left, rights_low[n], sums[m * WIDE + n]); }
          sums[m * WIDE + n] = multiplied(left, rights[n], sums[m * WIDE + n]);
        }
      }
    }
    workgroupBarrier();
    seen = store_loads(loads, local, seen);
    workgroupBarrier();
  }
  let is_exact = is_in_range(seen);
  for (var m = 0u; m < TALL; m++) {
    //! unroll
    for (var i = 0u; i < MATRICES_OF_SUMS; i++) {
      if (m == i / WIDE) { put_sums(256u * (subgroup * WIDE + i % WIDE), sums[i]); }
    }
    workgroupBarrier();
    for (var i = 0u; i < STRIP_LOADS; i++) {
      let at = strip_quad(local, i);
      let row = strip_row(at, m);
      let column = strip_column(at);
      if (is_exact && is_row(tile, row) && (!IS_GATED || column < WIDTH / 2u)) {
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
    if (is_row(tile, row) && (!IS_GATED || column < WIDTH / 2u)) {
      var values: vec4<f32>;
      if (IS_GATED) { values = float_sums(tile, row, column + WIDTH / 2u); }
      store_columns(tile, row, column, float_sums(tile, row, column), values);
    }
  }
}
