//! use convolution
//! loops: (ceil(span, STEP) + 1) * (1 + STEP) + 80
//! extent weights: group_count * window_height * window_width * quads * 16 * filter_quads
// A convolution (lib/convolution.wgsl) as a matrix product. A workgroup computes a tile of FILTERS by PIXELS
// outputs, TALL by WIDE each invocation. Weights and input come through workgroup memory, STEP of k at a time,
// k outermost; while one step is multiplied, the loads of the next are under way.
//
// Weights lie [group][k][filter], filters padded to quads.
const WORKGROUP = 256u;
const COLUMNS = 16u; // invocations side by side along the pixels
const ROWS = WORKGROUP / COLUMNS;
const TALL = 4u; // filters per invocation, 4 or 8
const WIDE = 4u; // pixels per invocation, 4 or 8
const FILTERS = TALL * ROWS;
const PIXELS = WIDE * COLUMNS; // divides WORKGROUP
const STEP = 16u; // an invocation brings two quads of channels and two quads of filters for each
const WHOLE_STEPS = false; // whether all of a step's channels belong to one tap
const WHOLE_QUADS = false; // whether the channels of a group fill their quads

@group(0) @binding(1) var<storage, read> weights: array<vec4<W>>;

var<workgroup> x_tile: array<vec4<f32>, STEP * PIXELS / 4u>;
var<workgroup> w_tile: array<vec4<f32>, STEP * FILTERS / 4u>;

// The products of every row with every column.
fn outer(rows: vec4<f32>, columns: vec4<f32>) -> mat4x4<f32> {
  return mat4x4(rows.x * columns, rows.y * columns, rows.z * columns, rows.w * columns);
}

// A division by multiplication: exact for numbers up to QUOTIENT_MAX, which planning keeps to.
fn quotient(number: u32, reciprocal: f32) -> u32 { return u32((f32(number) + 0.5) * reciprocal); }

// The input under one quad of a step's channels: zeros where the tap meets nothing or k is at its end.
fn load_quad(first_plane: u32, pixel: Pixel, step_quad: u32, k_quad: u32, inside: bool) -> vec4<f32> {
  let tap = quotient(select(k_quad, step_quad, WHOLE_STEPS), params.quads_reciprocal);
  let tap_y = quotient(tap, params.width_reciprocal);
  let met = meet(pixel, tap_y, tap - tap_y * params.window_width);
  let channel = (k_quad - tap * params.quads) * 4u;
  let channels = vec4(channel) + vec4(0u, 1u, 2u, 3u);
  var there = vec4(inside && met.inside && channel < params.channels);
  if (!WHOLE_QUADS) { there = there & (channels < vec4(params.channels)); }
  let at = select(vec4(0u), (first_plane + channels) * (params.height * params.width) + met.index, there);
  return select(vec4(0.0), vec4(f32(source[at.x]), f32(source[at.y]), f32(source[at.z]), f32(source[at.w])), there);
}

fn load_filters(k: u32, filter_quad: u32) -> vec4<f32> {
  return vec4<f32>(weights[k * params.filter_quads + filter_quad]);
}

fn store_quad(quad: u32, pixel: u32, channels: vec4<f32>) {
  let at = quad * PIXELS + pixel / 4u;
  x_tile[at][pixel % 4u] = channels.x;
  x_tile[at + PIXELS / 4u][pixel % 4u] = channels.y;
  x_tile[at + PIXELS / 2u][pixel % 4u] = channels.z;
  x_tile[at + PIXELS / 4u * 3u][pixel % 4u] = channels.w;
}

fn store_block(part: u32, group_index: u32, first_filter: u32, first_pixel: u32, block: mat4x4<f32>) {
  var sums = block;
  for (var p = 0u; p < 4u; p++) {
    let pixel = pixel_at(first_pixel + p);
    for (var f = 0u; f < 4u; f++) {
      if (first_pixel + p < pixel_count() && first_filter + f < params.filters) {
        store(part, pixel, group_index * params.filters + first_filter + f, sums[f][p]);
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
  let pixel_tiles = (pixel_count() + PIXELS - 1u) / PIXELS;
  let filter_tiles = (params.filters + FILTERS - 1u) / FILTERS;
  let tile = group.x + group.y * groups.x;
  let slice = tile / pixel_tiles / filter_tiles; // part · groups + group
  if (slice >= params.parts * params.group_count) { return; }
  let part = slice / params.group_count;
  let group_index = slice % params.group_count;
  let filter_base = tile / pixel_tiles % filter_tiles * FILTERS;
  let pixel_base = tile % pixel_tiles * PIXELS;
  let depth = params.window_height * params.window_width * params.quads * 4u;
  let k_first = part * params.span;
  let k_end = min(k_first + params.span, depth);

  // Each invocation brings one pixel's channels, and quads of filters.
  let pixel_brought = pixel_base + local % PIXELS;
  let is_pixel = pixel_brought < pixel_count();
  let pixel = pixel_at(select(0u, pixel_brought, is_pixel));
  let first_plane = (pixel.image * params.group_count + group_index) * params.channels;
  let filter_brought = min(filter_base / 4u + local % (FILTERS / 4u), params.filter_quads - 1u);
  let x_own = local / PIXELS; // its first quad of a step's channels, and how many come before the second
  let x_apart = WORKGROUP / PIXELS;
  let w_own = local / (FILTERS / 4u); // the same of k, for its filters
  let w_apart = WORKGROUP / (FILTERS / 4u);
  var x_first = vec4<f32>();
  var x_second = vec4<f32>();
  var w_first = vec4<f32>();
  var w_second = vec4<f32>();

  let row = local / COLUMNS; // its quad of the tile's filters; the second, where TALL is 8, is ROWS further
  let column = local % COLUMNS; // its quad of the tile's pixels
  var corner = mat4x4<f32>();
  var below = mat4x4<f32>();
  var beside = mat4x4<f32>();
  var across = mat4x4<f32>();
  for (var k_next = k_first; k_next < k_end + STEP; k_next += STEP) {
    if (k_next < k_end) {
      let step_quad = k_next / 4u;
      let near = step_quad + x_own;
      let far = near + x_apart;
      x_first = load_quad(first_plane, pixel, step_quad, near, is_pixel && near * 4u < k_end);
      x_second = load_quad(first_plane, pixel, step_quad, far, is_pixel && far * 4u < k_end);
      w_first = load_filters(group_index * depth + min(k_next + w_own, k_end - 1u), filter_brought);
      w_second = load_filters(group_index * depth + min(k_next + w_own + w_apart, k_end - 1u), filter_brought);
    }
    if (k_next > k_first) {
      for (var k = 0u; k < STEP; k++) {
        let left = w_tile[k * (FILTERS / 4u) + row];
        let right = x_tile[k * (PIXELS / 4u) + column];
        corner += outer(left, right);
        if (TALL == 8u) { below += outer(w_tile[k * (FILTERS / 4u) + row + ROWS], right); }
        if (WIDE == 8u) {
          let further = x_tile[k * (PIXELS / 4u) + column + COLUMNS];
          beside += outer(left, further);
          if (TALL == 8u) { across += outer(w_tile[k * (FILTERS / 4u) + row + ROWS], further); }
        }
      }
    }
    workgroupBarrier();
    store_quad(x_own, local % PIXELS, x_first);
    store_quad(x_own + x_apart, local % PIXELS, x_second);
    w_tile[local] = w_first;
    w_tile[local + WORKGROUP] = w_second;
    workgroupBarrier();
  }
  let filter_own = filter_base + row * 4u;
  let pixel_own = pixel_base + column * 4u;
  store_block(part, group_index, filter_own, pixel_own, corner);
  if (TALL == 8u) { store_block(part, group_index, filter_own + 4u * ROWS, pixel_own, below); }
  if (WIDE == 8u) { store_block(part, group_index, filter_own, pixel_own + 4u * COLUMNS, beside); }
  if (TALL == 8u && WIDE == 8u) {
    store_block(part, group_index, filter_own + 4u * ROWS, pixel_own + 4u * COLUMNS, across);
  }
}
