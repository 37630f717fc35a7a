//! loops: ROWS * (1 + PASSES * 3 + ceil(SUBGROUPS, SUBGROUP))
//! loops: ROWS * (ceil(LANES, WORKGROUP) * (3 + ceil(QUADS, 2 * LANES)) + ceil(LANES, SUBGROUP) + 16)
//! extent x_zeros: rows
// Rows of x as int8 in one plane (lib/x_planes.wgsl), after an RMS norm if there is a gain. A row's scale and zero
// point are given, or computed from its extremes (lib/extremes.wgsl) while the row is in registers. ROWS, PASSES, CELLS,
// WORKGROUP, SUBGROUP, SUBGROUPS, QUADS and EPS are the kernel's.
import super::q4_result::{x_scales};
import super::x_planes::{chunk_total, load, put_plane, units, weighted};
import super::extremes::{scale_between, zero_between};
import super::int8_steps::{int8_steps};

alias Z = i32;
const PLANES = 1u;
override LEAST: f32 = 1.1754943508222875e-38; // the smallest scale
const LANES = 256u; // invocations that share the sum of squares of a row
const LANE_TURNS = (LANES + WORKGROUP - 1u) / WORKGROUP;
const OWN_QUADS = (QUADS + 2u * LANES - 1u) / (2u * LANES); // groups of eight elements per lane
const BY_SUBGROUPS = SUBGROUP == 32u;
const MERGED = select(1u, 32u, BY_SUBGROUPS); // lanes per partial sum

@group(0) @binding(5) var<storage, read> x_zeros: array<Z>;

var<workgroup> squares: array<f32, LANES>;
var<workgroup> extremes: array<vec2<u32>, ROWS * SUBGROUPS>; // bits of the maximum, and of the negated minimum
var<workgroup> row_zeros: array<i32, ROWS>;

alias Row = array<mat2x4<f32>, PASSES>; // the elements of a row that an invocation holds

// The sum of a row's squares. The order of additions is that of norms of few rows and of quantize_rows.wgsl, so that
// results are equal bit for bit: each of LANES lanes adds every LANES-th group of eight (lib/row_registers.wgsl), and
// lanes are merged as in lib/rows.wgsl, by subgroups if they are 32 wide.
fn sum_of_squares(m: u32, local: u32) -> f32 {
  for (var turn = 0u; turn < LANE_TURNS; turn++) {
    let lane = turn * WORKGROUP + local;
    var sum = 0.0;
    for (var i = 0u; i < OWN_QUADS && lane < LANES; i++) {
      let eight = load(m, lane + i * LANES);
      sum += dot(eight[0], eight[0]);
      sum += dot(eight[1], eight[1]);
    }
    if (BY_SUBGROUPS) { sum = subgroupAdd(sum); }
    if (lane < LANES && lane % MERGED == 0u) { squares[lane / MERGED] = sum; }
  }
  workgroupBarrier();
  if (BY_SUBGROUPS) {
    var total = squares[0];
    for (var i = 1u; i < LANES / MERGED; i++) { total += squares[i]; }
    return total;
  }
  for (var step = LANES / 2u; step > 0u; step /= 2u) {
    for (var lane = local; lane < step; lane += WORKGROUP) { squares[lane] += squares[lane + step]; }
    workgroupBarrier();
  }
  return squares[0];
}

// A row after its norm. Gains are loaded before the barriers in sum_of_squares, to hide their latency.
fn normed(row: Row, m: u32, local: u32) -> Row {
  var held = row;
  var gains: Row;
  //! unroll
  for (var turn = 0u; turn < PASSES; turn++) {
    let quad = 2u * (turn * WORKGROUP + local);
    gains[turn] = mat2x4(weighted(m, quad, vec4(1.0)), weighted(m, quad + 1u, vec4(1.0)));
  }
  let scale = inverseSqrt(sum_of_squares(m, local) / f32(4u * QUADS) + EPS);
  //! unroll
  for (var turn = 0u; turn < PASSES; turn++) {
    held[turn] = mat2x4(held[turn][0] * scale * gains[turn][0], held[turn][1] * scale * gains[turn][1]);
  }
  return held;
}

// The bits of the maximum of four numbers and zero. As integers, the bits of floats from zero up are in the order of
// the floats, and those of negative floats are negative.
fn greatest_bits(values: vec4<f32>) -> u32 {
  let most = max(max(values.x, values.y), max(values.z, values.w));
  return u32(max(bitcast<i32>(most), 0));
}

// The scale and the zero point computed from a row's extremes.
fn fitting(held: Row, m: u32, local: u32) -> vec2<f32> {
  var upper = vec4(0.0);
  var lower = vec4(0.0);
  //! unroll
  for (var turn = 0u; turn < PASSES; turn++) {
    upper = max(upper, max(held[turn][0], held[turn][1]));
    lower = min(lower, min(held[turn][0], held[turn][1]));
  }
  var found = vec2(subgroupMax(greatest_bits(upper)), subgroupMax(greatest_bits(-lower)));
  if (local % SUBGROUP == 0u) { extremes[m * SUBGROUPS + local / SUBGROUP] = found; }
  workgroupBarrier();
  for (var i = local % SUBGROUP; i < SUBGROUPS; i += SUBGROUP) {
    found = max(found, extremes[m * SUBGROUPS + i]);
  }
  let most = bitcast<f32>(subgroupMax(found.x));
  let least = -bitcast<f32>(subgroupMax(found.y));
  let scale = max(scale_between(least, most, -128.0, 127.0), LEAST);
  return vec2(scale, zero_between(least, scale, -128.0, 127.0));
}

// Converts rows of x and stores them in workgroup memory.
fn load_planes(m_first: u32, local: u32) {
  for (var m = 0u; m < ROWS; m++) {
    var held: Row;
    //! unroll
    for (var turn = 0u; turn < PASSES; turn++) { held[turn] = load(m_first + m, turn * WORKGROUP + local); }
    @if(gain) { held = normed(held, m_first + m, local); }
    @if(x_scales) let by = vec2(f32(x_scales[m_first + m]), f32(x_zeros[m_first + m]));
    @else let by = fitting(held, m, local);
    if (local == 0u) { row_zeros[m] = i32(by.y); }
    //! unroll
    for (var turn = 0u; turn < PASSES; turn++) {
      let octet = turn * WORKGROUP + local;
      let is_inside = octet < 4u * CELLS;
      var low: vec4<i32>;
      var high: vec4<i32>;
      if (is_inside) {
        low = vec4<i32>(int8_steps(held[turn][0], by.x, by.y));
        high = vec4<i32>(int8_steps(held[turn][1], by.x, by.y));
      }
      let both = low + high;
      let sum = chunk_total(u32(both.x + both.y + both.z + both.w));
      if (is_inside) {
        put_plane(m, 0u, octet, pack4xI8(vec4(low.xz, high.xz)), pack4xI8(vec4(low.yw, high.yw)));
        // The sum is Σ (x - zero) · (w - 8), with w as stored. This is -8 · Σ (x - zero); the kernel subtracts
        // zero · Σ w later.
        let start = 8u * (32u * u32(i32(by.y)) - sum);
        if (octet % 4u == 0u) { units[m * CELLS + octet / 4u] = vec2(start, bitcast<u32>(by.x)); }
      }
    }
  }
}

// Units include the scale, so sums need no factor. A later multiplication could be fused with the addition of the
// bias, which would change the rounding.
fn factor(m: u32) -> f32 { return 1.0; }

fn zero_point(m: u32) -> i32 { return row_zeros[m]; }
