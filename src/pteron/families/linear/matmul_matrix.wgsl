//! use matmul
//! use matrix_tile
//! use matmul_loads
//! loops: ceil(span, STEP) + TALL * (1 + STRIP_LOADS) + HEIGHT * WIDTH // (4 * WORKGROUP) * (1 + ceil(span, 4))
// A matrix product (lib/matmul.wgsl) by tiles of matrices (lib/matrix_tile.wgsl, lib/matmul_loads.wgsl). Every step
// passes STEP k of a and of b through workgroup memory as halves; meanwhile an invocation's share of the next step is
// loaded from global memory into registers.

// Stores the share in workgroup memory; the largest factors so far.
fn store_loads(loads: Loads, local: u32, before: Seen) -> Seen {
  var seen = before;
  //! unroll
  for (var i = 0u; i < A_LOADS; i++) {
    let at = quad_at(local + i * WORKGROUP, HEIGHT, true);
    if (HEIGHT * STEP / 4u % WORKGROUP == 0u || local + i * WORKGROUP < HEIGHT * STEP / 4u) {
      put_left(at.x, at.y, loads.a[i]);
      seen.x = max(seen.x, abs(loads.a[i]));
    }
  }
  //! unroll
  for (var i = 0u; i < B_LOADS; i++) {
    let at = quad_at(local + i * WORKGROUP, WIDTH, IS_ALONG);
    if (WIDTH * STEP / 4u % WORKGROUP == 0u || local + i * WORKGROUP < WIDTH * STEP / 4u) {
      let scaled = loads.b[i] * SCALE;
      if (IS_ALONG) { put_right(at.x, at.y, scaled); } else { put_right_across(at.x, at.y, scaled); }
      seen.w = max(seen.w, abs(scaled));
    }
  }
  return seen;
}

// Four columns of a row, from floats.
fn float_sums(tile: Tile, m: u32, n: u32, first: u32, end: u32) -> vec4<f32> {
  var sums = vec4(0.0);
  for (var k = first; k < end; k += 4u) {
    let left = quad_of_a(tile.z, m, k);
    //! unroll
    for (var e = 0u; e < 4u; e++) {
      if (IS_ALONG) {
        sums[e] += dot(left, quad_of_b(tile.z, k, n + e));
      } else {
        sums = fma(vec4(left[e]), quad_of_b(tile.z, k + e, n), sums);
      }
    }
  }
  return sums;
}

@compute @workgroup_size(WORKGROUP)
fn main(
  @builtin(workgroup_id) group: vec3<u32>,
  @builtin(num_workgroups) groups: vec3<u32>,
  @builtin(local_invocation_index) local: u32,
) {
  let tile = tile_of(group, groups);
  if (tile.slice >= params.batch * params.parts) { return; }
  let subgroup = local / 32u;
  let first = part_of(tile.slice) * params.span;
  let depth = min(params.span, params.depth - first);
  let steps = step_count(depth);
  begin_tile(local);
  var loads = fetch(tile, first, local);
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
    loads = fetch(tile, first + min(step + 1u, steps - 1u) * STEP, local);
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
      let row = tile.m + strip_row(at, m);
      if (is_exact && row < params.rows) { store_quad(tile.slice, row, tile.n + strip_column(at), strip_sums(at)); }
    }
    workgroupBarrier();
  }
  if (is_exact) { return; }
  for (var i = local; i < HEIGHT * WIDTH / 4u; i += WORKGROUP) {
    let m = tile.m + i / (WIDTH / 4u);
    let n = tile.n + i % (WIDTH / 4u) * 4u;
    if (m < params.rows) { store_quad(tile.slice, m, n, float_sums(tile, m, n, first, first + depth)); }
  }
}
