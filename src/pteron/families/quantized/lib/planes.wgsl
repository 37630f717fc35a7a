//! use digits
//! use source
//! extent gain: 4 * QUADS
//! extent x_zeros: rows
// ROWS rows of x in workgroup memory, as whole numbers (lib/digits.wgsl): a plane of int8 per digit, and for
// each chunk of 32 the number that its sums with weights start from, and its unit. A chunk of a plane is two
// vec4s: a word has the digits of four even k, the next those of the odd ones between them, as two masks find
// them in a word of 4-bit weights. Rows are QUADS vec4s long and CELLS chunks in memory, zeros past the end.
alias G = f32;
alias Z = i32;

@group(0) @binding(5) var<storage, read> x_zeros: array<Z>;
@group(0) @binding(8) var<storage, read> gain: array<vec4<G>>;

var<workgroup> planes: array<vec4<u32>, ROWS * 2u * PLANES * CELLS>;
var<workgroup> units: array<vec2<u32>, ROWS * CELLS>; // (where a chunk's sum starts, bits of its unit)
var<workgroup> squares: array<f32, ROWS * SUBGROUPS>;

// What becomes of x before it is split into digits.
fn prepare(m: u32, quad: u32, value: vec4<f32>) -> vec4<f32> { return value; }

// Eight elements of x, zeros past its end.
fn load(m: u32, place: u32) -> mat2x4<f32> {
  let quads = vec2(2u * place, 2u * place + 1u);
  let found = given(m, min(quads, vec2(QUADS - 1u)));
  return mat2x4(select(vec4(0.0), found[0], quads.x < QUADS), select(vec4(0.0), found[1], quads.y < QUADS));
}

fn largest_bits(value: vec4<f32>) -> u32 {
  let bits = bitcast<vec4<u32>>(value) & vec4(0x7fffffffu);
  return max(max(bits.x, bits.y), max(bits.z, bits.w));
}

// Rows of x into workgroup memory: eight elements an invocation, four invocations a chunk.
fn bring(m_first: u32, local: u32) {
  for (var m = 0u; m < ROWS; m++) {
    var sum_of_squares = 0.0;
    for (var turn = 0u; turn < PASSES; turn++) {
      let place = turn * WORKGROUP + local;
      let eight = load(m_first + m, place);
      if (IS_NORMED) { sum_of_squares += dot(eight[0], eight[0]) + dot(eight[1], eight[1]); }
      let a = prepare(m_first + m, 2u * place, eight[0]);
      let b = prepare(m_first + m, 2u * place + 1u, eight[1]);
      var largest = max(largest_bits(a), largest_bits(b));
      largest = max(largest, subgroupShuffleXor(largest, 1u));
      largest = max(largest, subgroupShuffleXor(largest, 2u));
      let power = select(chunk_power(largest), 1.0, IS_WHOLE);
      let low = fixed(a, power);
      let high = fixed(b, power);
      let both = low + high;
      var sum = both.x + both.y + both.z + both.w - 8u * MIDDLE_BITS;
      sum += subgroupShuffleXor(sum, 1u);
      sum += subgroupShuffleXor(sum, 2u);
      let left = digits(low);
      let right = digits(high);
      let even = vec4(left.xz, right.xz);
      let odd = vec4(left.yw, right.yw);
      let chunk = place / 4u;
      if (chunk < CELLS) {
        for (var plane = 0u; plane < PLANES; plane++) {
          let at = ((m * PLANES + plane) * 2u + place / 2u % 2u) * CELLS + chunk;
          planes[at][place % 2u * 2u] = pack4xU8(even >> vec4(8u * plane));
          planes[at][place % 2u * 2u + 1u] = pack4xU8(odd >> vec4(8u * plane));
        }
        let unit = chunk_unit(select(largest, max(largest, (127u + BITS) << 23u), IS_WHOLE));
        if (place % 4u == 0u) { units[m * CELLS + chunk] = vec2(0u - 8u * sum, bitcast<u32>(unit)); }
      }
    }
    if (IS_NORMED) {
      let total = subgroupAdd(sum_of_squares);
      if (local % SUBGROUP == 0u) { squares[m * SUBGROUPS + local / SUBGROUP] = total; }
    }
  }
}
