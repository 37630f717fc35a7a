// The angles by which rotations rotate the pairs of a head. Kernels declare the tables, and `params.rotary`: the
// elements of a head that are rotated.
override HALVED: bool = false; // pairs are (j, j + rotary/2), each element with an angle; or (2j, 2j + 1), with one
override ARE_JOINED: bool = false; // sines follow in the table of cosines,
override SINES: u32 = 0u; // from here on

// Cosine and sine of a pair, for its first and for its second element, in the tables from `base` on.
fn first_angle(base: u32, pair: u32) -> vec2<f32> {
  @if(sines) return vec2(f32(cosines[base + pair]), f32(sines[base + pair]));
  @elif(ARE_JOINED) return vec2(f32(cosines[base + pair]), f32(cosines[SINES + base + pair]));
  @else return vec2(f32(cosines[base + 2u * pair]), f32(cosines[base + 2u * pair + 1u])); // side by side
}

fn second_angle(base: u32, pair: u32) -> vec2<f32> {
  @if(HALVED) return first_angle(base + params.rotary / 2u, pair);
  @else return first_angle(base, pair);
}
