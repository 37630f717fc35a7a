// Numbers as factors of matrices (lib/matrix_cores.wgsl): in one half, or in two planes of halves.
@if(IS_EMULATED) import super::matrix_emulated::{LOW_SCALE, put_halves};
@else import super::matrix_cores::{LOW_SCALE, put_halves};

override IS_EMULATED: bool = false; // for devices without matrix cores, in tests
override LARGEST: f32 = 65504.0; // halves hold numbers below it
override SMALLEST: f32 = 0.00006103515625; // and those below this one with fewer bits

// Four numbers, from half `at` of the first plane on.
fn put_split(at: u32, plane: u32, planes: u32, value: vec4<f32>) {
  if (planes == 1u) {
    put_halves(at, value);
    return;
  }
  // By bits: drivers simplify value - f32(f16(value)) to zero, also if packed between. Below 2^-14 halves are multiples
  // of 2^-24.
  let rounded = bitcast<vec4<f32>>((bitcast<vec4<u32>>(value) + 0x1000u) & vec4(0xffffe000u));
  let high = select(rounded, round(value * 16777216.0) / 16777216.0, abs(value) < vec4(0.00006103515625));
  put_halves(at, high);
  put_halves(at + plane, (value - high) * LOW_SCALE);
}

fn largest(value: vec4<f32>) -> f32 { return max(max(value.x, value.y), max(value.z, value.w)); }
