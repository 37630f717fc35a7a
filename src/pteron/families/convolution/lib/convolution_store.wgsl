//! extent out: batch * group_count * filters * out_height * out_width
//! extent partial: parts * batch * group_count * filters * out_height * out_width
// Finishes outputs of a convolution (lib/convolution.wgsl) and stores them; sums of parts as they are. BY_QUADS stores four
// adjacent pixels at a time, where the pixels of a launch, and planes of out, are multiples of four.
import super::convolution::{Pixel, launch_image, launch_pixel, params, place_in_image, result};

alias R = f32;
override BY_QUADS: bool = false;

@if(BY_QUADS) alias Value = vec4<f32>;
@else alias Value = f32;
@if(BY_QUADS) alias Stored = vec4<R>;
@else alias Stored = R;

@group(0) @binding(3) var<storage, read_write> out: array<Stored>;
@group(0) @binding(3) var<storage, read_write> partial: array<Value>;

// The plane of a filter, counted over all groups: `row` here and below.
fn plane_of(part: u32, image: u32, row: u32) -> u32 {
  return (part * params.batch + image) * params.group_count * params.filters + row;
}

@if(!BY_QUADS)
fn store(part: u32, pixel: Pixel, row: u32, sum: f32) {
  let at = (plane_of(part, pixel.image, row) * params.out_height + pixel.y) * params.out_width + pixel.x;
  @if(partial) partial[at] = sum;
  @else out[at] = Stored(result(pixel, row, sum));
}

// Four adjacent pixels of one row of the output, as far as they exist.
fn store_in_row(pixel: Pixel, row: u32, sums: vec4<f32>) {
  @if(BY_QUADS) store_pixels(0u, pixel.y * params.out_width + pixel.x, row, sums);
  @else {
    //! unroll
    for (var p = 0u; p < 4u; p++) {
      if (pixel.x + p < params.out_width) { store(0u, Pixel(pixel.image, pixel.y, pixel.x + p), row, sums[p]); }
    }
  }
}

// Four adjacent pixels of a launch, from pixel `at` on, up to the last of the launch and of the image.
fn store_pixels(part: u32, at: u32, row: u32, sums: vec4<f32>) {
  @if(BY_QUADS) {
    if (at >= params.first_pixel + params.pixels || launch_pixel(at).y >= params.out_height) { return; }
    let plane = plane_of(part, launch_image(at), row);
    let quad = (plane * params.out_height * params.out_width + place_in_image(at)) / 4u;
    @if(partial) partial[quad] = sums;
    @else {
      var results: vec4<f32>;
      //! unroll
      for (var p = 0u; p < 4u; p++) { results[p] = result(launch_pixel(at + p), row, sums[p]); }
      out[quad] = Stored(results);
    }
  }
  @else {
    //! unroll
    for (var p = 0u; p < 4u; p++) {
      let pixel = launch_pixel(at + p);
      if (at + p < params.first_pixel + params.pixels && pixel.y < params.out_height) { store(part, pixel, row, sums[p]); }
    }
  }
}
