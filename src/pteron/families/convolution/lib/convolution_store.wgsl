//! extent out: parts * batch * group_count * filters * out_height * out_width
// Finishes and stores outputs of a convolution (lib/convolution.wgsl). lib/convolution_store_quads.wgsl replaces it where
// pixels come in fours.
alias R = f32;

@group(0) @binding(3) var<storage, read_write> out: array<R>;

fn store(part: u32, pixel: Pixel, row: u32, sum: f32) {
  let plane = (part * params.batch + pixel.image) * params.group_count * params.filters + row;
  out[(plane * params.out_height + pixel.y) * params.out_width + pixel.x] = R(result(pixel, row, sum));
}

// Stores four results, from element 4 · quad on.
fn put_quad(quad: u32, results: vec4<f32>) {
  //! unroll
  for (var p = 0u; p < 4u; p++) { out[4u * quad + p] = R(results[p]); }
}

// Four adjacent pixels of one row of the output, as far as they exist.
fn store_in_row(pixel: Pixel, row: u32, totals: vec4<f32>) {
  //! unroll
  for (var p = 0u; p < 4u; p++) {
    if (pixel.x + p < params.out_width) { store(0u, Pixel(pixel.image, pixel.y, pixel.x + p), row, totals[p]); }
  }
}

// Four adjacent pixels of a launch's image, from pixel `at` on, up to the last of the launch and of the image.
fn store_pixels(part: u32, at: u32, row: u32, totals: vec4<f32>) {
  //! unroll
  for (var p = 0u; p < 4u; p++) {
    let pixel = launch_pixel(at + p);
    if (at + p < params.first_pixel + params.pixels && pixel.y < params.out_height) { store(part, pixel, row, totals[p]); }
  }
}
