//! loops: ITERATIONS
// out[0] = how many of ITERATIONS iterations a loop runs: some drivers end long loops silently. out[1] depends
// on x and on every iteration, so that no compiler computes the loop ahead. One invocation.
override ITERATIONS: u32 = 524288u;

@group(0) @binding(0) var<storage, read> x: array<u32>;
@group(0) @binding(1) var<storage, read_write> out: array<u32>;

@compute @workgroup_size(1)
fn main() {
  var mixed = x[0];
  var count = 0u;
  for (var i = 0u; i < ITERATIONS; i++) {
    mixed = mixed * 1664525u + 1013904223u;
    count += 1u;
  }
  out[0] = count;
  out[1] = mixed;
}
