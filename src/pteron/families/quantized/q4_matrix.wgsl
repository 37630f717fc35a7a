//! loops: STEPS + HEIGHT * WIDTH // (4 * WORKGROUP) * PART
// A product with 4-bit or 8-bit weights (lib/q4.wgsl, lib/q4_loads.wgsl) by tiles of matrices (lib/matrix_walk.wgsl), over
// PART words; PART is a multiple of STEP_WORDS. Words are stored by put_nibbles of lib/matrix_cores.wgsl or
// lib/matrix_emulated.wgsl.
import super::lib::q4::{GROUP, GROUPS, OTHERS, PART, PARTS, WORDS, Word, load, load_word, minimum, scaled, scales, store_gated, store_quad, unpack};
import package::wgsl::lib::matrix_tile::{HEIGHT, K_PITCH, SCALE, WIDTH, W_PLANE, W_PLANES, W_START, put_right};
import super::lib::tile::{IS_GATED, Tile, tile_of, weights_row};
import super::lib::q4_loads::{Loads, Rows, STEP, STEPS, STEP_WORDS, W_COUNT, W_LOADS, fetch, rows_of};
import package::wgsl::lib::matrix_walk::{Seen, seen_right, store_left};
import super::lib::q4_params::{params};
import super::lib::rows_in_order::{row_at};

fn is_tile(tile: Tile) -> bool { return tile.part < PARTS && tile.m < tile.end; }
fn is_row(tile: Tile, row: u32) -> bool { return tile.m + row < tile.end; }
fn steps_of(tile: Tile) -> u32 { return STEPS; }

fn fetch_step(tile: Tile, rows: Rows, step: u32, local: u32) -> Loads {
  return fetch(rows, tile.part * PART + step * STEP_WORDS, local);
}

// Unpacks a word and stores it; the largest magnitudes of its weights.
fn store_word(column: u32, k: u32, word: Word, scale: f32, least: f32) -> vec4<f32> {
  @if(IN_BYTES || minima) {
    let low = scaled(unpack(word, 0u), scale, least);
    let high = scaled(unpack(word, 4u), scale, least);
    put_right(column, k, low);
    put_right(column, k + 4u, high);
    return max(abs(low), abs(high));
  }
  @else { // the second plane has up to size · 8 · 2^-8 · LOW_SCALE
    put_nibbles(W_START + column * K_PITCH + k, W_PLANE, W_PLANES, word, scale);
    let size = abs(scale);
    return vec4(select(8.0, 64.0, W_PLANES == 2u && size > 1.0) * size);
  }
}

fn right_column(local: u32, i: u32) -> u32 { return (local + i * WORKGROUP) / STEP_WORDS; }

fn store_loads(loads: Loads, local: u32, before: Seen) -> Seen {
  var seen = before;
  seen.left = store_left(loads.x, local, before.left);
  //! unroll
  for (var i = 0u; i < W_LOADS; i++) {
    let at = local + i * WORKGROUP;
    if (W_COUNT % WORKGROUP == 0u || at < W_COUNT) {
      let scale = loads.scales[i] * SCALE;
      let least = loads.least[i] * SCALE;
      let stored = store_word(at / STEP_WORDS, at % STEP_WORDS * 8u, loads.words[i], scale, least);
      seen.right[i] = seen_right(before.right[i], stored);
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

fn float_sums(tile: Tile, row: u32, column: u32) -> vec4<f32> {
  var sums: vec4<f32>;
  //! unroll
  for (var e = 0u; e < 4u; e++) {
    sums[e] = float_sum(row_at(tile.m + row), weights_row(tile, column + e), tile.part);
  }
  return sums;
}

fn store_columns(tile: Tile, row: u32, column: u32, sums: vec4<f32>, values: vec4<f32>) {
  let m = row_at(tile.m + row);
  let n = tile.n + column;
  @if(IS_GATED) if (n < OTHERS) { store_gated(m, n, sums, values); }
  @else if (n < params.columns) { store_quad(tile.part, m, n, sums); }
}
