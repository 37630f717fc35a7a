// The source of a convolution (lib/convolution.wgsl) as the columns of a matrix product: four k of a pixel at a time.
const WHOLE_STEPS = false; // whether all of a step's channels belong to one tap
const WHOLE_QUADS = false; // whether the channels of a group fill their quads

// Division by multiplication with the reciprocal: exact up to QUOTIENT_MAX (kernels.py), which planning ensures.
fn quotient(number: u32, reciprocal: f32) -> u32 { return u32((f32(number) + 0.5) * reciprocal); }

// Four channels of the source under a tap; zeros outside the source or past the last k.
fn load_quad(first_plane: u32, pixel: Pixel, step_quad: u32, k_quad: u32, inside: bool) -> vec4<f32> {
  let tap = quotient(select(k_quad, step_quad, WHOLE_STEPS), params.quads_reciprocal);
  let tap_y = quotient(tap, params.width_reciprocal);
  let input = tap_input(pixel, tap_y, tap - tap_y * params.window_width);
  let channel = (k_quad - tap * params.quads) * 4u;
  let channels = vec4(channel) + vec4(0u, 1u, 2u, 3u);
  var there = vec4(inside && input.inside && channel < params.channels);
  if (!WHOLE_QUADS) { there = there & (channels < vec4(params.channels)); }
  let at = select(vec4(0u), (first_plane + channels) * (params.height * params.width) + input.index, there);
  let value = vec4(f32(source[at.x]), f32(source[at.y]), f32(source[at.z]), f32(source[at.w]));
  return select(vec4(0.0), value, there);
}
