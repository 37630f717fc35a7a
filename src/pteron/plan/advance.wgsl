//! extent growths: 2 * groups[0]
// words[place] += growth, for every place in a list: what a loop's parameters need from one step to the next.
// One workgroup of one invocation takes one place, since places are few; none is listed twice.

@group(0) @binding(0) var<storage, read> growths: array<vec2<u32>>; // the place, the growth
@group(0) @binding(1) var<storage, read_write> words: array<u32>;

@compute @workgroup_size(1)
fn main(@builtin(workgroup_id) group: vec3<u32>) {
  let growth = growths[group.x];
  words[growth.x] += growth.y;
}
