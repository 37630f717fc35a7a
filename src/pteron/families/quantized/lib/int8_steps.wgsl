// Floats as int8 by a scale and a zero point: clamp(round(value / scale) + zero, -128, 127). An error in the last
// place of the quotient could change how a value near a half is rounded, so the remainder is divided too and added.
fn int8_steps(value: vec4<f32>, scale: f32, zero: f32) -> vec4<f32> {
  let inverse = 1.0 / scale;
  let about = value * inverse;
  let quotient = fma(fma(-about, vec4(scale), value), vec4(inverse), about);
  return clamp(round(quotient) + zero, vec4(-128.0), vec4(127.0));
}
