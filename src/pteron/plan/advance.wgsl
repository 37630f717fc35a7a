// words[place] += growth, for every place in a list: what a loop's parameters need from one step to the next.
// One workgroup, whose invocations take the list in turns. No place stands in the list twice.
const WORKGROUP = 64u;

@group(0) @binding(0) var<storage, read> growths: array<vec2<u32>>; // the place, the growth
@group(0) @binding(1) var<storage, read_write> words: array<u32>;

@compute @workgroup_size(WORKGROUP)
fn main(@builtin(local_invocation_index) local: u32) {
  for (var index = local; index < arrayLength(&growths); index += WORKGROUP) {
    let growth = growths[index];
    words[growth.x] += growth.y;
  }
}
