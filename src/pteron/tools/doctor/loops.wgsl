// out[0] = how many of x[0] iterations a loop runs: some drivers end long loops silently. out[1] depends on
// every iteration, so that no compiler computes the loop ahead. One invocation.
@group(0) @binding(0) var<storage, read> x: array<u32>;
@group(0) @binding(1) var<storage, read_write> out: array<u32>;

@compute @workgroup_size(1)
fn main() {
  var mixed = x[1];
  var count = 0u;
  for (var i = 0u; i < x[0]; i++) {
    mixed = mixed * 1664525u + 1013904223u;
    count += 1u;
  }
  out[0] = count;
  out[1] = mixed;
}
