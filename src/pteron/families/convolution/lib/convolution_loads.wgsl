//! extent factors: batch * group_count * channels
// The source of a convolution (lib/convolution.wgsl) as the columns of a matrix product: four k of a pixel at a time.
// It may be multiplied by a factor for every plane first.
import super::convolution::{Pixel, params, source, tap_input};

alias F = f32;
override WHOLE_STEPS: bool = false; // all of a step's channels belong to one tap
override WHOLE_QUADS: bool = false; // the channels of a group fill their quads

@group(0) @binding(7) var<storage, read> factors: array<F>;

// Of four planes.
fn factors_of(planes: vec4<u32>) -> vec4<f32> {
  @if(factors) return vec4(f32(factors[planes.x]), f32(factors[planes.y]), f32(factors[planes.z]), f32(factors[planes.w]));
  @else return vec4(1.0);
}

// Division by multiplication with the reciprocal: exact up to 2^20, which planning ensures.
fn quotient(number: u32, reciprocal: f32) -> u32 { return u32((f32(number) + 0.5) * reciprocal); }

// Four channels of the source under a tap, k = 4 · k_quad of a pixel; zeros outside the source or if not `inside`: past the last
// k, or no pixel. step_quad is the first quad of the step, whose tap is that of k_quad if WHOLE_STEPS: fewer divisions. The
// plane of the group's first channel is first_plane.
fn load_quad(first_plane: u32, pixel: Pixel, step_quad: u32, k_quad: u32, inside: bool) -> vec4<f32> {
  let tap = quotient(select(k_quad, step_quad, WHOLE_STEPS), params.quads_reciprocal);
  let tap_y = quotient(tap, params.width_reciprocal);
  let input = tap_input(pixel, tap_y, tap - tap_y * params.window_width);
  let channel = (k_quad - tap * params.quads) * 4u;
  let channels = vec4(channel) + vec4(0u, 1u, 2u, 3u);
  var there = vec4(inside && input.inside && channel < params.channels);
  if (!WHOLE_QUADS) { there = there & (channels < vec4(params.channels)); }
  let planes = select(vec4(0u), first_plane + channels, there);
  let at = planes * (params.height * params.width) + input.index;
  let value = vec4(f32(source[at.x]), f32(source[at.y]), f32(source[at.z]), f32(source[at.w]));
  return select(vec4(0.0), value * factors_of(planes), there);
}
