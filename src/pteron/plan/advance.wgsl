// words[place] += growth, for every place in a list: what a loop's parameters need from one step to the next.
// One invocation takes one place; none stands in the list twice.
const WORKGROUP = 64u;

@group(0) @binding(0) var<storage, read> growths: array<vec2<u32>>; // the place, the growth
@group(0) @binding(1) var<storage, read_write> words: array<u32>;

@compute @workgroup_size(WORKGROUP)
fn main(@builtin(global_invocation_id) id: vec3<u32>) {
  if (id.x >= arrayLength(&growths)) { return; }
  let growth = growths[id.x];
  words[growth.x] += growth.y;
}
