// The elements of cached values, one at a time or four. `row` is where a head begins.
alias V = f32;

@group(0) @binding(2) var<storage, read> v: array<V>;

fn value_element(row: u32, d: u32) -> f32 { return f32(v[row + d]); }

// Four elements from d on; those past the head are its last.
fn value_elements(row: u32, d: u32, width: u32) -> vec4<f32> {
  let at = row + min(d + vec4(0u, 1u, 2u, 3u), vec4(width - 1u));
  return vec4(f32(v[at.x]), f32(v[at.y]), f32(v[at.z]), f32(v[at.w]));
}
