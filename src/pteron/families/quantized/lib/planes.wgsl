//! loops: ROWS * (1 + PASSES * (1 + PLANES) + SUBGROUPS)
// Rows of floats as planes of digits (lib/digits.wgsl, lib/x_planes.wgsl). The scale of an RMS norm is not applied to
// x but to the sums, as `factor`. ROWS, PASSES, CELLS, WORKGROUP, SUBGROUP, SUBGROUPS, QUADS and EPS are the kernel's;
// `in_order` and `chunk_start` are those of its weights (lib/chunk_nibbles.wgsl, lib/chunk_bytes.wgsl).
import super::digits::{MIDDLE_BITS, PLANES, chunk_power, chunk_unit, digits, fixed};
import super::x_planes::{chunk_total, load, put_plane, units, weighted};

var<workgroup> squares: array<f32, ROWS * SUBGROUPS>;

fn largest_bits(value: vec4<f32>) -> u32 {
  let bits = bitcast<vec4<u32>>(value) & vec4(0x7fffffffu);
  return max(max(bits.x, bits.y), max(bits.z, bits.w));
}

// Converts rows of x and stores them in workgroup memory.
fn load_planes(m_first: u32, local: u32) {
  for (var m = 0u; m < ROWS; m++) {
    var sum_of_squares = 0.0;
    for (var turn = 0u; turn < PASSES; turn++) {
      let octet = turn * WORKGROUP + local;
      let eight = load(m_first + m, octet);
      @if(gain) { sum_of_squares += dot(eight[0], eight[0]) + dot(eight[1], eight[1]); }
      let a = weighted(m_first + m, 2u * octet, eight[0]);
      let b = weighted(m_first + m, 2u * octet + 1u, eight[1]);
      var largest = max(largest_bits(a), largest_bits(b));
      largest = max(largest, subgroupShuffleXor(largest, 1u));
      largest = max(largest, subgroupShuffleXor(largest, 2u));
      let power = chunk_power(largest);
      let low = fixed(a, power);
      let high = fixed(b, power);
      let both = low + high;
      let sum = chunk_total(both.x + both.y + both.z + both.w - 8u * MIDDLE_BITS);
      let left = digits(low);
      let right = digits(high);
      let ordered = in_order(left, right);
      let chunk = octet / 4u;
      if (chunk < CELLS) {
        for (var plane = 0u; plane < PLANES; plane++) {
          put_plane(m, plane, octet, pack4xU8(ordered[0] >> vec4(8u * plane)), pack4xU8(ordered[1] >> vec4(8u * plane)));
        }
        let unit = bitcast<u32>(chunk_unit(largest));
        if (octet % 4u == 0u) { units[m * CELLS + chunk] = vec2(chunk_start(sum), unit); }
      }
    }
    @if(gain) {
      let total = subgroupAdd(sum_of_squares);
      if (local % SUBGROUP == 0u) { squares[m * SUBGROUPS + local / SUBGROUP] = total; }
    }
  }
}

// The factor of a row's sums.
fn factor(m: u32) -> f32 {
  @if(gain) {
    var sum = 0.0;
    for (var i = 0u; i < SUBGROUPS; i++) { sum += squares[m * SUBGROUPS + i]; }
    return inverseSqrt(sum / f32(4u * QUADS) + EPS);
  }
  @else return 1.0;
}

fn zero_point(m: u32) -> i32 { return 0; }
