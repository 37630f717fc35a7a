//! loops: ARRAYS * window_height * window_width * (1 + array_channels) + QUADS
//! extent source_a: 4 * ceil(array_channels * array_plane + shifts[0], 4)
//! extent source_b: 4 * ceil(array_channels * array_plane + shifts[1], 4)
//! extent source_c: 4 * ceil(array_channels * array_plane + shifts[2], 4)
//! extent source_d: 4 * ceil(array_channels * array_plane + shifts[3], 4)
//! extent weights_a: window_height * window_width * array_channels * array_filters
//! extent weights_b: window_height * window_width * array_channels * array_filters
//! extent weights_c: window_height * window_width * array_channels * array_filters
//! extent weights_d: window_height * window_width * array_channels * array_filters
// A convolution (lib/convolution.wgsl) of some channels and rows of one image, for software adapters: the source and the weights are
// uniform arrays, which load eight times as fast as storage buffers there.
//
// One invocation computes four adjacent pixels of FILTERS filters. All invocations of a workgroup have the same filters: of the
// lanes of a subgroup, each of the first four loads one of four weights, and all read them.
//
// Each array of the source has array_channels channels, and an array of weights, [tap][channel][filter] from first_filter on.
// Arrays have a power of two of vec4s, so that few kernels are compiled.
import package::wgsl::lib::index::{flat_index};
import package::wgsl::lib::lanes::{of_four_lanes};
import super::lib::convolution::{Pixel, TapInput, launch_pixel, params, tap_input};
import super::lib::convolution_store::{store_pixels};

const WORKGROUP = 8u; // the lanes of a vector, or of two
const WIDE = 4u; // pixels
override FILTERS: u32 = 16u;
const QUADS = FILTERS / 4u;
override ARRAYS: u32 = 4u; // 1 to 4
override ROOM: u32 = 64u; // vec4s of an array of the source
override WEIGHTS_ROOM: u32 = 64u;

@group(0) @binding(9) var<uniform> source_a: array<vec4<f32>, ROOM>;
@group(0) @binding(10) var<uniform> source_b: array<vec4<f32>, ROOM>;
@group(0) @binding(11) var<uniform> source_c: array<vec4<f32>, ROOM>;
@group(0) @binding(12) var<uniform> source_d: array<vec4<f32>, ROOM>;
@group(0) @binding(13) var<uniform> weights_a: array<vec4<f32>, WEIGHTS_ROOM>;
@group(0) @binding(14) var<uniform> weights_b: array<vec4<f32>, WEIGHTS_ROOM>;
@group(0) @binding(15) var<uniform> weights_c: array<vec4<f32>, WEIGHTS_ROOM>;
@group(0) @binding(16) var<uniform> weights_d: array<vec4<f32>, WEIGHTS_ROOM>;

fn value(array: u32, at: u32) -> f32 {
  switch (array) {
    @if(source_d) case 3u: { return source_d[at / 4u][at % 4u]; }
    @if(source_c) case 2u: { return source_c[at / 4u][at % 4u]; }
    @if(source_b) case 1u: { return source_b[at / 4u][at % 4u]; }
    default: { return source_a[at / 4u][at % 4u]; }
  }
}

fn weight(array: u32, at: u32, e: u32) -> f32 {
  switch (array) {
    @if(weights_d) case 3u: { return weights_d[at][e]; }
    @if(weights_c) case 2u: { return weights_c[at][e]; }
    @if(weights_b) case 1u: { return weights_b[at][e]; }
    default: { return weights_a[at][e]; }
  }
}

@compute @workgroup_size(WORKGROUP)
fn main(
  @builtin(global_invocation_id) id: vec3<u32>,
  @builtin(num_workgroups) groups: vec3<u32>,
  @builtin(subgroup_invocation_id) subgroup_lane: u32,
) {
  let lane = subgroup_lane % 4u;
  let strips = (params.pixels + WORKGROUP * WIDE - 1u) / (WORKGROUP * WIDE) * WORKGROUP;
  let i = flat_index(id, groups);
  let block = min(i / strips, params.array_filters / FILTERS - 1u);
  var pixels = array<Pixel, WIDE>();
  //! unroll
  for (var p = 0u; p < WIDE; p++) {
    pixels[p] = launch_pixel(params.first_pixel + min(i % strips * WIDE + p, params.pixels - 1u));
  }
  var sums = array<array<f32, FILTERS>, WIDE>();
  //! unroll
  for (var a = 0u; a < ARRAYS; a++) {
    var part = array<array<f32, FILTERS>, WIDE>();
    for (var tap = 0u; tap < params.window_height * params.window_width; tap++) {
      var inputs = array<TapInput, WIDE>();
      //! unroll
      for (var p = 0u; p < WIDE; p++) {
        inputs[p] = tap_input(pixels[p], tap / params.window_width, tap % params.window_width);
        inputs[p].index += params.shifts[a] - select(0u, params.first_row * params.width, inputs[p].inside);
      }
      for (var c = 0u; c < params.array_channels; c++) {
        let row = (tap * params.array_channels + c) * (params.array_filters / 4u) + block * QUADS;
        var values = array<f32, WIDE>();
        //! unroll
        for (var p = 0u; p < WIDE; p++) {
          values[p] = select(0.0, value(a, inputs[p].index + c * params.array_plane), inputs[p].inside);
        }
        //! unroll
        for (var q = 0u; q < QUADS; q++) {
          let four = of_four_lanes(weight(a, row + q, lane));
          //! unroll
          for (var p = 0u; p < WIDE; p++) {
            //! unroll
            for (var e = 0u; e < 4u; e++) { part[p][4u * q + e] += values[p] * four[e]; }
          }
        }
      }
    }
    //! unroll
    for (var p = 0u; p < WIDE; p++) {
      //! unroll
      for (var f = 0u; f < FILTERS; f++) { sums[p][f] += part[p][f]; }
    }
  }
  if (i / strips > block) { return; }
  // Drivers compile for seconds where there is a copy of `store_pixels` for each filter. Four are picked by comparisons, and a
  // bound that is not known when compiled keeps the loop.
  let first = params.first_filter + block * FILTERS;
  let count = min(FILTERS, params.filters - first);
  for (var q = 0u; 4u * q < count; q++) {
    var totals = array<vec4<f32>, 4>();
    //! unroll
    for (var other = 0u; other < QUADS; other++) {
      //! unroll
      for (var e = 0u; e < 4u; e++) {
        let f = 4u * other + e;
        totals[e] = select(totals[e], vec4(sums[0][f], sums[1][f], sums[2][f], sums[3][f]), q == other);
      }
    }
    //! unroll
    for (var e = 0u; e < 4u; e++) {
      let row = first + 4u * q + e;
      if (row < params.filters) { store_pixels(params.part, params.first_pixel + i % strips * WIDE, row, totals[e]); }
    }
  }
}
