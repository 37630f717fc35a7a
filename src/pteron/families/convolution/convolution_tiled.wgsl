//! loops: (ceil(span, STEP * SLICES) + 1) * (1 + STEP) + 80
//! extent weights: group_count * window_height * window_width * quads * 16 * filter_quads
// A convolution (lib/convolution.wgsl) as a matrix product. A workgroup computes a tile of FILTERS by PIXELS
// outputs, TALL by four per invocation. Weights and source pass through workgroup memory, STEP terms k at a time,
// k outermost; while one step is multiplied, the loads of the next are in flight. If a convolution has few tiles, a
// workgroup is divided into SLICES: each takes every SLICES-th step, and their sums are added at the end.
//
// Weights are [group][k][filter], filters padded to quads. lib/convolution_store.wgsl passes sums on to `result` of
// lib/convolution.wgsl, where an epilogue goes.
import super::lib::convolution::{W, params, pixel_after, pixel_at, pixel_count};
import super::lib::convolution_loads::{load_quad};
import super::lib::convolution_store::{store};

// A step's source and filters are two vec4s of each invocation: PIXELS and FILTERS are LANES / 2.
override WORKGROUP: u32 = 128u;
override SLICES: u32 = 1u; // 1, or 4 if TALL is 4
const LANES = WORKGROUP / SLICES;
override COLUMNS: u32 = 16u; // invocations of a slice side by side along the pixels
const ROWS = LANES / COLUMNS; // and along the filters
override TALL: u32 = 8u; // filters per invocation, 4 or 8
const FILTERS = TALL * ROWS;
const PIXELS = 4u * COLUMNS;
const STEP = 16u; // k
const X_TILE = STEP * PIXELS / 4u; // vec4s per slice and step
const W_TILE = STEP * FILTERS / 4u;

@group(0) @binding(1) var<storage, read> weights: array<vec4<W>>;

var<workgroup> x_tile: array<vec4<f32>, SLICES * X_TILE>; // [slice][k][pixel]
var<workgroup> w_tile: array<vec4<f32>, SLICES * W_TILE>; // [slice][k][filter]

// The products of every row with every column.
fn outer(rows: vec4<f32>, columns: vec4<f32>) -> mat4x4<f32> {
  return mat4x4(rows.x * columns, rows.y * columns, rows.z * columns, rows.w * columns);
}

// The weights of a quad of filters. Past the last k they are arbitrary: the source is zero there.
fn load_filters(first: u32, k: u32, filter_quad: u32) -> vec4<f32> {
  return vec4<f32>(weights[(first + k) * params.filter_quads + filter_quad]);
}

// Puts four channels of a pixel, quad `quad` of a step's, into the tile of a slice that begins at `base`.
fn put_source(base: u32, quad: u32, pixel: u32, channels: vec4<f32>) {
  let at = base + quad * PIXELS + pixel / 4u;
  x_tile[at][pixel % 4u] = channels.x;
  x_tile[at + PIXELS / 4u][pixel % 4u] = channels.y;
  x_tile[at + PIXELS / 2u][pixel % 4u] = channels.z;
  x_tile[at + PIXELS / 4u * 3u][pixel % 4u] = channels.w;
}

// Stores the outputs of four filters (columns of the block) at four pixels, those that exist.
fn store_block(part: u32, group_index: u32, first_filter: u32, first_pixel: u32, block: mat4x4<f32>) {
  var sums = block;
  var pixel = pixel_at(min(first_pixel, pixel_count() - 1u));
  for (var p = 0u; p < 4u; p++) {
    for (var f = 0u; f < 4u; f++) {
      if (first_pixel + p < pixel_count() && first_filter + f < params.filters) {
        store(part, pixel, group_index * params.filters + first_filter + f, sums[f][p]);
      }
    }
    pixel = pixel_after(pixel);
  }
}

// The same of one filter.
fn store_row(part: u32, group_index: u32, filter_index: u32, first_pixel: u32, row: vec4<f32>) {
  var sums = row;
  var pixel = pixel_at(min(first_pixel, pixel_count() - 1u));
  for (var p = 0u; p < 4u; p++) {
    if (first_pixel + p < pixel_count() && filter_index < params.filters) {
      store(part, pixel, group_index * params.filters + filter_index, sums[p]);
    }
    pixel = pixel_after(pixel);
  }
}

@compute @workgroup_size(WORKGROUP)
fn main(
  @builtin(workgroup_id) group: vec3<u32>,
  @builtin(num_workgroups) groups: vec3<u32>,
  @builtin(local_invocation_index) local: u32,
) {
  let pixel_tiles = (pixel_count() + PIXELS - 1u) / PIXELS;
  let filter_tiles = (params.filters + FILTERS - 1u) / FILTERS;
  let tile = group.x + group.y * groups.x;
  let part_and_group = tile / pixel_tiles / filter_tiles; // part · group_count + group
  if (part_and_group >= params.parts * params.group_count) { return; }
  let part = part_and_group / params.group_count;
  let group_index = part_and_group % params.group_count;
  let filter_base = tile / pixel_tiles % filter_tiles * FILTERS;
  let pixel_base = tile % pixel_tiles * PIXELS;
  let depth = params.window_height * params.window_width * params.quads * 4u;
  let k_first = part * params.span;
  let k_end = min(k_first + params.span, depth);

  // Each invocation loads channels of one pixel, and quads of filters.
  let slice_index = local / LANES;
  let lane = local % LANES;
  let pixel_loaded = pixel_base + lane % PIXELS;
  let is_pixel = pixel_loaded < pixel_count();
  let pixel = pixel_at(select(0u, pixel_loaded, is_pixel));
  let first_plane = (pixel.image * params.group_count + group_index) * params.channels;
  let filter_loaded = min(filter_base / 4u + lane % (FILTERS / 4u), params.filter_quads - 1u);
  let x_quad = lane / PIXELS; // its first quad of a step's channels; the second is x_stride quads further
  let x_stride = LANES / PIXELS;
  let w_row = lane / (FILTERS / 4u); // its first k of a step for filters; the second is w_stride further
  let w_stride = LANES / (FILTERS / 4u);
  let x_base = slice_index * X_TILE;
  let w_base = slice_index * W_TILE;
  var x_first = vec4<f32>();
  var x_second = vec4<f32>();
  var w_first = vec4<f32>();
  var w_second = vec4<f32>();

  let row = lane / COLUMNS; // its quad of the tile's filters; if TALL is 8, the second is ROWS further
  let column = lane % COLUMNS; // its quad of the tile's pixels
  var corner = mat4x4<f32>();
  var below = mat4x4<f32>();
  for (var k_next = k_first; k_next < k_end + STEP * SLICES; k_next += STEP * SLICES) {
    if (k_next < k_end) {
      let k_slice = k_next + slice_index * STEP;
      let near = k_slice / 4u + x_quad;
      let far = near + x_stride;
      x_first = load_quad(first_plane, pixel, k_slice / 4u, near, is_pixel && near * 4u < k_end);
      x_second = load_quad(first_plane, pixel, k_slice / 4u, far, is_pixel && far * 4u < k_end);
      w_first = load_filters(group_index * depth, min(k_slice + w_row, k_end - 1u), filter_loaded);
      let w_k = min(k_slice + w_row + w_stride, k_end - 1u);
      w_second = load_filters(group_index * depth, w_k, filter_loaded);
    }
    if (k_next > k_first) {
      for (var k = 0u; k < STEP; k++) {
        let left = w_tile[w_base + k * (FILTERS / 4u) + row];
        let right = x_tile[x_base + k * (PIXELS / 4u) + column];
        corner += outer(left, right);
        if (TALL == 8u) { below += outer(w_tile[w_base + k * (FILTERS / 4u) + row + ROWS], right); }
      }
    }
    workgroupBarrier();
    put_source(x_base, x_quad, lane % PIXELS, x_first);
    put_source(x_base, x_quad + x_stride, lane % PIXELS, x_second);
    w_tile[w_base + lane] = w_first;
    w_tile[w_base + lane + LANES] = w_second;
    workgroupBarrier();
  }
  let filter_first = filter_base + row * 4u;
  let pixel_first = pixel_base + column * 4u;
  if (SLICES > 1u) {
    // Each of both tiles stores two of every invocation's four rows; each slice adds up one row.
    x_tile[local * 2u] = corner[0];
    x_tile[local * 2u + 1u] = corner[1];
    w_tile[local * 2u] = corner[2];
    w_tile[local * 2u + 1u] = corner[3];
    workgroupBarrier();
    var sum = vec4<f32>();
    for (var other = 0u; other < SLICES; other++) {
      let at = (other * LANES + lane) * 2u + slice_index % 2u;
      sum += select(w_tile[at], x_tile[at], slice_index < 2u);
    }
    store_row(part, group_index, filter_first + slice_index, pixel_first, sum);
    return;
  }
  store_block(part, group_index, filter_first, pixel_first, corner);
  if (TALL == 8u) { store_block(part, group_index, filter_first + 4u * ROWS, pixel_first, below); }
}
