//! extent latent: rows * columns
//! extent scales: (columns - 1) // group * scales_pitch + rows
//! extent out: rows * ceil(columns, 2)
// out[n, j] = code[n, 2j] + 16 · code[n, 2j + 1], code[n, k] = clamp(round(latent[n, k] / scale[k / group, n]),
// -8, 7) + 8, or 8 if the scale is zero. One invocation writes one byte, in a word of its own; the last byte of an
// odd row has only its low nibble.
import package::wgsl::lib::index::{flat_index};

alias X = f32;
alias S = f32;
alias R = u32;
const WORKGROUP = 64u;

struct Params {
  rows: u32,
  columns: u32,
  group: u32,
  scales_pitch: u32,
}

@group(0) @binding(0) var<storage, read> latent: array<X>;
@group(0) @binding(1) var<storage, read> scales: array<S>;
@group(0) @binding(2) var<storage, read_write> out: array<R>;
@group(0) @binding(3) var<uniform> params: Params;

// x / s rounded to f32, then to the nearest integer, ties to even. A GPU's quotient may be wrong in its last bits, which
// matters near a half: there, exact products decide on which side of it x / s is.
fn whole_quotient(x: f32, s: f32) -> f32 {
  let quotient = x / s;
  let half = floor(quotient) + 0.5;
  if (abs(quotient) > 8.0 || abs(quotient - half) > 1e-5) { return round(quotient); }
  let s_high = bitcast<f32>(bitcast<u32>(s) & 0xfffff000u); // 12 bits, so that its product with half is exact
  let rest = (x - half * s_high) - half * (s - s_high); // x - half · s, exact: all three are nearly equal
  let excess = rest * sign(s); // of (quotient - half) · |s|
  // Half the distance from `half` to the next float, which is shorter towards zero from a power of two.
  let step = bitcast<f32>(bitcast<u32>(half) & 0x7f800000u) * 0x1p-24f;
  let inner = select(step, 0.5 * step, abs(half) == 0.5 && (excess > 0.0) != (half > 0.0));
  if (abs(excess) <= inner * abs(s)) { return round(half); }
  return select(floor(half), ceil(half), excess > 0.0);
}

fn code(n: u32, k: u32) -> u32 {
  let scale = f32(scales[k / params.group * params.scales_pitch + n]);
  let x = f32(latent[n * params.columns + k]);
  if (scale == 0.0) { return 8u; }
  return u32(clamp(whole_quotient(x, scale), -8.0, 7.0) + 8.0);
}

@compute @workgroup_size(WORKGROUP)
fn main(@builtin(global_invocation_id) id: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>) {
  let i = flat_index(id, groups);
  let bytes = (params.columns + 1u) / 2u; // of a row
  if (i >= params.rows * bytes) { return; }
  let n = i / bytes;
  let k = i % bytes * 2u;
  let last = params.columns - 1u;
  let high = select(0u, code(n, min(k + 1u, last)), k < last);
  out[i] = R(code(n, k) + 16u * high);
}
