//! use q4
//! use matrix_tile
//! use tile
//! use q4_loads
//! loops: STEPS + TALL * (1 + STRIP_LOADS) + HEIGHT * WIDTH // (4 * WORKGROUP) * (1 + PART)
// A product with 4-bit or 8-bit weights (lib/q4.wgsl) by tiles of matrices (lib/matrix_tile.wgsl), over PART words; PART
// is a multiple of STEP_WORDS. Every step passes STEP k of x and of the unpacked, scaled weights through workgroup memory
// as halves; meanwhile an invocation's share of the next step is loaded from global memory into registers.

// Unpacks a word and stores it; the largest magnitudes of its weights.
fn store_word(column: u32, k: u32, word: Word, scale: f32, least: f32) -> vec4<f32> {
  let low = scaled(unpack(word, 0u), scale, least);
  let high = scaled(unpack(word, 4u), scale, least);
  put_right(column, k, low);
  put_right(column, k + 4u, high);
  return max(abs(low), abs(high));
}

// Unpacks the share and stores it in workgroup memory; the largest factors so far.
fn store_loads(loads: Loads, local: u32, before: Seen) -> Seen {
  var seen = before;
  //! unroll
  for (var i = 0u; i < X_LOADS; i++) {
    let at = local + i * WORKGROUP;
    if (X_COUNT % WORKGROUP == 0u || at < X_COUNT) {
      put_left(at / STEP_QUADS, at % STEP_QUADS * 4u, loads.x[i]);
      seen.x = max(seen.x, abs(loads.x[i]));
    }
  }
  //! unroll
  for (var i = 0u; i < W_LOADS; i++) {
    let at = local + i * WORKGROUP;
    if (W_COUNT % WORKGROUP == 0u || at < W_COUNT) {
      let scale = loads.scales[i] * SCALE;
      let least = loads.least[i] * SCALE;
      seen.w = max(seen.w, store_word(at / STEP_WORDS, at % STEP_WORDS * 8u, loads.words[i], scale, least));
    }
  }
  return seen;
}

// The sum of a row and a row of weights over a part, from floats.
fn float_sum(m: u32, row: u32, part: u32) -> f32 {
  var sum = 0.0;
  for (var word = part * PART; word < min((part + 1u) * PART, WORDS); word++) {
    let weights = load_word(row, word);
    let scale = scales[row * GROUPS + word / GROUP];
    let least = minimum(row, word);
    sum += dot(load(m, 2u * word), scaled(unpack(weights, 0u), scale, least));
    sum += dot(load(m, 2u * word + 1u), scaled(unpack(weights, 4u), scale, least));
  }
  return sum;
}

// Four sums, from floats, of the columns of a tile from `column` on.
fn float_sums(tile: Tile, place: u32, column: u32) -> vec4<f32> {
  var sums: vec4<f32>;
  //! unroll
  for (var e = 0u; e < 4u; e++) {
    sums[e] = float_sum(row_at(place), weights_row(tile, column + e), tile.part);
  }
  return sums;
}

// Stores four columns of a tile, if gated with their values, which are half a tile further on.
fn store_columns(tile: Tile, place: u32, column: u32, sums: vec4<f32>, values: vec4<f32>) {
  let n = tile.n + column;
  if (IS_GATED) {
    if (n < OTHERS) { store_gated(row_at(place), n, sums, values); }
    return;
  }
  if (n < params.columns) { store_quad(tile.part, row_at(place), n, sums); }
}

@compute @workgroup_size(WORKGROUP)
fn main(
  @builtin(workgroup_id) group: vec3<u32>,
  @builtin(num_workgroups) groups: vec3<u32>,
  @builtin(local_invocation_index) local: u32,
) {
  let tile = tile_of(group, groups);
  if (tile.part >= PARTS || tile.m >= tile.end) { return; }
  let subgroup = local / 32u;
  let rows = rows_of(tile, local);
  let first = tile.part * PART;
  begin_tile(local);
  var loads = fetch(rows, first, local);
  var seen = store_loads(loads, local, Seen(vec4(0.0), vec4(0.0)));
  workgroupBarrier();
  //! spread
  var sums: array<Sums, MATRICES_OF_SUMS>;
  //! spread
  var rights: array<Right, WIDE>;
  //! spread
  var rights_low: array<Right, WIDE>;
  for (var step = 0u; step < STEPS; step++) {
    // The last step is loaded twice, so that all iterations are alike.
    loads = fetch(rows, first + min(step + 1u, STEPS - 1u) * STEP_WORDS, local);
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
      let place = tile.m + strip_row(at, m);
      let column = strip_column(at);
      if (is_exact && place < tile.end && (!IS_GATED || column < GATES_WIDTH)) {
        var values: vec4<f32>;
        if (IS_GATED) { // a value is in the same place of the subgroup that is half a tile further on
          values = strip_sums(StripQuad(at.subgroup + SUBGROUPS / 2u, at.row, at.quad));
        }
        store_columns(tile, place, column, strip_sums(at), values);
      }
    }
    workgroupBarrier();
  }
  if (is_exact) { return; }
  for (var i = local; i < HEIGHT * WIDTH / 4u; i += WORKGROUP) {
    let place = tile.m + i / (WIDTH / 4u);
    let column = i % (WIDTH / 4u) * 4u;
    if (place < tile.end && (!IS_GATED || column < GATES_WIDTH)) {
      var values: vec4<f32>;
      if (IS_GATED) { values = float_sums(tile, place, column + GATES_WIDTH); }
      store_columns(tile, place, column, float_sums(tile, place, column), values);
    }
  }
}
