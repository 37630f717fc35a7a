//! loops: LOOPS
//! extent x: count
//! extent out: count
// out[i] depends on CHAINS chains of LOOPS · REPEATS multiply-adds of vec4s, which do not wait for each other. One
// invocation computes one element.
import package::wgsl::lib::index::{flat_index};

const WORKGROUP = 64u;
const CHAINS = 4u;
const REPEATS = 8u;
const LOOPS = 32u;
override IS_FUSED: bool = false; // whether `fma` computes them

struct Params {
  count: u32,
}

@group(0) @binding(0) var<storage, read> x: array<f32>;
@group(0) @binding(1) var<storage, read_write> out: array<f32>;
@group(0) @binding(2) var<uniform> params: Params;

@compute @workgroup_size(WORKGROUP)
fn main(@builtin(global_invocation_id) id: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>) {
  let i = flat_index(id, groups);
  if (i >= params.count) { return; }
  let factor = vec4(x[i] + 0.5);
  let addend = vec4(x[i] + 0.25);
  //! spread
  var chains: array<vec4<f32>, CHAINS>;
  //! unroll
  for (var c = 0u; c < CHAINS; c++) { chains[c] = vec4(x[i] + f32(c)); }
  for (var turn = 0u; turn < LOOPS; turn++) {
    //! unroll
    for (var repeat = 0u; repeat < REPEATS; repeat++) {
      //! unroll
      for (var c = 0u; c < CHAINS; c++) {
        @if(IS_FUSED) chains[c] = fma(chains[c], factor, addend);
        @else chains[c] = chains[c] * factor + addend;
      }
    }
  }
  var total = 0.0;
  //! unroll
  for (var c = 0u; c < CHAINS; c++) { total += dot(chains[c], vec4(1.0)); }
  out[i] = total;
}
