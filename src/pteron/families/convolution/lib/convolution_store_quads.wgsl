//! extent out: parts * batch * group_count * filters * out_height * out_width
// As lib/convolution_store.wgsl, for launches whose pixels, and planes of out, are multiples of four.
alias R = f32;

@group(0) @binding(3) var<storage, read_write> out: array<vec4<R>>;

fn put_quad(quad: u32, results: vec4<f32>) { out[quad] = vec4<R>(results); }

fn store_pixels(part: u32, at: u32, row: u32, totals: vec4<f32>) {
  if (at >= params.first_pixel + params.pixels || launch_pixel(at).y >= params.out_height) { return; }
  var results: vec4<f32>;
  //! unroll
  for (var p = 0u; p < 4u; p++) { results[p] = result(launch_pixel(at + p), row, totals[p]); }
  let plane = (part * params.batch + launch_image(at)) * params.group_count * params.filters + row;
  put_quad((plane * params.out_height * params.out_width + place_in_image(at)) / 4u, results);
}

fn store_in_row(pixel: Pixel, row: u32, totals: vec4<f32>) {
  store_pixels(0u, pixel.y * params.out_width + pixel.x, row, totals);
}
