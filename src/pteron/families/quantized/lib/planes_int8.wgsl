//! use x_planes
//! use extremes
//! use int8_steps
//! loops: ROWS * (1 + PASSES * 3 + ceil(SUBGROUPS, SUBGROUP))
//! loops: ROWS * (ceil(LANES, WORKGROUP) * (3 + ceil(QUADS, 2 * LANES)) + ceil(LANES, SUBGROUP) + 16)
//! extent x_zeros: rows
// Rows of x as int8, after an RMS norm where there is a gain, in one plane (lib/x_planes.wgsl). A row's scale and
// zero point fit its extremes (lib/extremes.wgsl), or are given. Invocations hold a row while they look for these.
alias Z = i32;
const PLANES = 1u;
const IS_GIVEN = false; // whether x_scales and x_zeros are there
const LEAST = 1.1754943508222875e-38; // that a scale can be
const LANES = 256u; // that share a norm's row
const LANE_TURNS = (LANES + WORKGROUP - 1u) / WORKGROUP;
const OWN_QUADS = (QUADS + 2u * LANES - 1u) / (2u * LANES); // eights of each
const BY_SUBGROUPS = SUBGROUP == 32u;
const MERGED = select(1u, 32u, BY_SUBGROUPS); // lanes that share a sum

@group(0) @binding(5) var<storage, read> x_zeros: array<Z>;

var<workgroup> squares: array<f32, LANES>;
var<workgroup> extremes: array<vec2<u32>, ROWS * SUBGROUPS>; // the greatest, and the least without its sign
var<workgroup> row_zeros: array<i32, ROWS>;

alias Row = array<mat2x4<f32>, PASSES>; // what an invocation holds of a row

// The sum of a row's squares, in the order in which norms of few rows and quantize_rows.wgsl add them up, so that its
// last bit is the same: each of LANES lanes has every LANES-th eight (lib/row_registers.wgsl), and lanes are brought
// together as lib/rows.wgsl does it, or lib/rows_subgroup.wgsl where subgroups have its width.
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

// A row after its norm. The gain is asked for before others are waited for.
fn normed(row: Row, m: u32, local: u32) -> Row {
  var held = row;
  var gains: Row;
  //! unroll
  for (var turn = 0u; turn < PASSES; turn++) {
    let quad = 2u * (turn * WORKGROUP + local);
    gains[turn] = mat2x4(weighted(quad, vec4(1.0)), weighted(quad + 1u, vec4(1.0)));
  }
  let scale = inverseSqrt(sum_of_squares(m, local) / f32(4u * QUADS) + EPS);
  //! unroll
  for (var turn = 0u; turn < PASSES; turn++) {
    held[turn] = mat2x4(held[turn][0] * scale * gains[turn][0], held[turn][1] * scale * gains[turn][1]);
  }
  return held;
}

// The bits of the greatest of some numbers and of zero: as integers they have the order of the floats, and
// those of a negative number are negative.
fn greatest_bits(values: vec4<f32>) -> u32 {
  let most = max(max(values.x, values.y), max(values.z, values.w));
  return u32(max(bitcast<i32>(most), 0));
}

// The scale and the zero point of a row.
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

// The same of row m of all, where they are given.
fn given_steps(m: u32) -> vec2<f32> { return vec2(1.0, 0.0); }

// Rows of x into workgroup memory.
fn bring(m_first: u32, local: u32) {
  for (var m = 0u; m < ROWS; m++) {
    var held: Row;
    //! unroll
    for (var turn = 0u; turn < PASSES; turn++) { held[turn] = load(m_first + m, turn * WORKGROUP + local); }
    if (IS_NORMED) { held = normed(held, m_first + m, local); }
    var by = given_steps(m_first + m);
    if (!IS_GIVEN) { by = fitting(held, m, local); }
    if (local == 0u) { row_zeros[m] = i32(by.y); }
    //! unroll
    for (var turn = 0u; turn < PASSES; turn++) {
      let place = turn * WORKGROUP + local;
      let is_inside = place < 4u * CELLS;
      var low: vec4<i32>;
      var high: vec4<i32>;
      if (is_inside) {
        low = vec4<i32>(int8_steps(held[turn][0], by.x, by.y));
        high = vec4<i32>(int8_steps(held[turn][1], by.x, by.y));
      }
      let both = low + high;
      let sum = chunk_total(u32(both.x + both.y + both.z + both.w));
      if (is_inside) {
        put_plane(m, 0u, place, pack4xI8(vec4(low.xz, high.xz)), pack4xI8(vec4(low.yw, high.yw)));
        // Σ (x - zero) · (w - 8), w as it is stored: -zero · Σ w is yet to come.
        let start = 8u * (32u * u32(i32(by.y)) - sum);
        if (place % 4u == 0u) { units[m * CELLS + place / 4u] = vec2(start, bitcast<u32>(by.x)); }
      }
    }
  }
}

// Units have the scale, so that nothing is left to multiply: no compiler makes one rounding of that and a sum.
fn factor(m: u32) -> f32 { return 1.0; }

fn zero_point(m: u32) -> i32 { return row_zeros[m]; }
