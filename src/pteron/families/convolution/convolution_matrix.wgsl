//! loops: ceil(span, STEP) + HEIGHT * WIDTH // (4 * WORKGROUP) * (4 + span)
//! extent weights: filters * window_height * window_width * quads * 4
// A convolution (lib/convolution.wgsl) of one group as a matrix product, filters by pixels, by tiles of matrices
// (lib/matrix_walk.wgsl). Its launch has all pixels of the batch.
//
// Weights are [filter][k]. In a tile, they are the left factor (X_LOADS, X_PLANES) and the source is the right one (W_LOADS,
// W_PLANES): its rows are filters, its columns pixels. An invocation loads the source of one pixel only: WIDTH divides
// WORKGROUP. lib/convolution_store.wgsl passes sums on to `result` of lib/convolution.wgsl, where an epilogue goes.
import package::wgsl::lib::matrix_tile::{HEIGHT, SCALE, WIDTH, WORKGROUP, put_right};
import super::lib::convolution::{Pixel, W, params, pixel_at, pixel_count};
import super::lib::convolution_loads::{load_quad};
import super::lib::convolution_store::{store_pixels};
import package::wgsl::lib::matrix_walk::{Seen, left_place, left_row, seen_right, store_left};

override STEP: u32 = 32u; // k; the span of a part is a multiple of it
const IS_GATED = false;
override IS_WHOLE: bool = false; // the number of k is a multiple of STEP
const X_LOADS = (HEIGHT * STEP / 4u + WORKGROUP - 1u) / WORKGROUP;
const W_LOADS = (WIDTH * STEP / 4u + WORKGROUP - 1u) / WORKGROUP;

@group(0) @binding(1) var<storage, read> weights: array<vec4<W>>;

struct Tile {
  m: u32, // first filter
  n: u32, // first pixel
  part: u32,
}

fn tile_of(group: vec3<u32>, groups: vec3<u32>) -> Tile {
  let index = group.x + group.y * groups.x;
  let across = (pixel_count() + WIDTH - 1u) / WIDTH;
  let down = (params.filters + HEIGHT - 1u) / HEIGHT;
  return Tile(index / across % down * HEIGHT, index % across * WIDTH, index / across / down);
}

fn is_tile(tile: Tile) -> bool { return tile.part < params.parts; }
fn is_row(tile: Tile, row: u32) -> bool { return tile.m + row < params.filters; }

fn depth() -> u32 { return params.window_height * params.window_width * params.quads * 4u; }
fn first_k(tile: Tile) -> u32 { return tile.part * params.span; }
fn end_k(tile: Tile) -> u32 { return min(first_k(tile) + params.span, depth()); }
fn steps_of(tile: Tile) -> u32 { return (end_k(tile) - first_k(tile) + STEP - 1u) / STEP; }

// What an invocation's loads of the source have in common in all steps.
struct Rows {
  pixel: Pixel,
  first_plane: u32, // of the pixel's image
}

// Past the last pixel, the last.
fn column_at(tile: Tile, column: u32) -> Rows {
  let pixel = pixel_at(min(tile.n + column, pixel_count() - 1u));
  return Rows(pixel, pixel.image * params.channels);
}

fn rows_of(tile: Tile, local: u32) -> Rows { return column_at(tile, right_column(local, 0u)); }

// Four k of a filter. Zero past the last k; past the last filter, the last.
fn weights_at(tile: Tile, row: u32, k: u32) -> vec4<f32> {
  let first = min(tile.m + row, params.filters - 1u) * depth();
  if (IS_WHOLE) { return vec4<f32>(weights[(first + k) / 4u]); }
  return select(vec4(0.0), vec4<f32>(weights[(first + min(k, depth() - 4u)) / 4u]), k < depth());
}

// What an invocation loads for a step: four k of a filter, or of a pixel, each.
struct Loads {
  weights: array<vec4<f32>, X_LOADS>,
  source: array<vec4<f32>, W_LOADS>,
}

fn right_column(local: u32, i: u32) -> u32 { return (local + i * WORKGROUP) % WIDTH; }
fn right_quad(local: u32, i: u32) -> u32 { return (local + i * WORKGROUP) / WIDTH; } // of k

fn fetch_step(tile: Tile, rows: Rows, step: u32, local: u32) -> Loads {
  let k = first_k(tile) + step * STEP;
  var loads: Loads;
  //! unroll
  for (var i = 0u; i < X_LOADS; i++) {
    loads.weights[i] = weights_at(tile, left_row(local, i), k + left_place(local, i) % (STEP / 4u) * 4u) * SCALE;
  }
  //! unroll
  for (var i = 0u; i < W_LOADS; i++) {
    let quad = k / 4u + right_quad(local, i);
    loads.source[i] = load_quad(rows.first_plane, rows.pixel, k / 4u, quad, IS_WHOLE || 4u * quad < depth());
  }
  return loads;
}

fn store_loads(loads: Loads, local: u32, before: Seen) -> Seen {
  var seen = before;
  seen.left = store_left(loads.weights, local, before.left);
  //! unroll
  for (var i = 0u; i < W_LOADS; i++) {
    if (WIDTH * STEP / 4u % WORKGROUP == 0u || local + i * WORKGROUP < WIDTH * STEP / 4u) {
      put_right(right_column(local, i), 4u * right_quad(local, i), loads.source[i]);
      seen.right[i] = seen_right(before.right[i], loads.source[i]);
    }
  }
  return seen;
}

// Four columns of a row, from floats, for numbers that halves do not hold.
fn float_sums(tile: Tile, row: u32, column: u32) -> vec4<f32> {
  var sums = vec4(0.0);
  for (var e = 0u; e < 4u; e++) {
    let at = column_at(tile, column + e);
    for (var k = first_k(tile); k < end_k(tile); k += 4u) {
      sums[e] += dot(weights_at(tile, row, k), load_quad(at.first_plane, at.pixel, k / 4u, k / 4u, true));
    }
  }
  return sums;
}

// `values` are those of gates; there are none.
fn store_columns(tile: Tile, row: u32, column: u32, sums: vec4<f32>, values: vec4<f32>) {
  store_pixels(tile.part, tile.n + column, tile.m + row, sums);
}
