// Products of 16 × 16 matrices by subgroups of 32 invocations: f16 factors, f32 sums. Factors are in workgroup memory, in
// rows of `pitch` halves, a multiple of eight: along k for every row of the left factor and every column of the right
// one; or, for the right one, along its columns for every k.
// lib/matrix_emulated.wgsl replaces it on devices without matrix cores.
//
// A kernel must declare no other variables in workgroup memory: Dawn gives them the same addresses.
alias Half = f16;
alias Left = subgroup_matrix_left<Half, 16, 16>;
alias Right = subgroup_matrix_right<Half, 16, 16>;
alias Sums = subgroup_matrix_result<f32, 16, 16>;
override MEMORY_BYTES: u32 = 8192u;
override WORD_COUNT: u32 = 4u; // at the end of the memory
override LOW_SCALE: f32 = 2048.0; // of low halves

var<workgroup> memory: buffer<MEMORY_BYTES>;

fn begin_matrices(local: u32) { }

// Stores four numbers as halves, from half `at` of the memory on, a multiple of four.
fn put_halves(at: u32, value: vec4<f32>) {
  bufferView<array<vec2<u32>>>(&memory, 0u)[at / 4u] = bitcast<vec2<u32>>(vec4<Half>(value));
}

// Stores eight 4-bit weights of a word, which are stored there plus 8, times a scale. Two of them in the lowest bits of
// halves of 1024 are these numbers plus 1024. With two planes, the high part of the scale has eight bits, so that
// products with it are exact; those with the rest of the scale, times LOW_SCALE, go to the second plane.
fn put_nibbles(at: u32, plane: u32, planes: u32, word: u32, scale: f32) {
  let high = bitcast<f32>((bitcast<u32>(scale) + 0x8000u) & 0xffff0000u);
  let first = Half(select(high, scale, planes == 1u));
  let second = Half((scale - high) * LOW_SCALE);
  var made: vec4<u32>;
  var rest: vec4<u32>;
  //! unroll
  for (var i = 0u; i < 4u; i++) {
    let bits = word >> (8u * i);
    let pair = bitcast<vec2<Half>>((bits & 0xfu) | ((bits << 12u) & 0xf0000u) | 0x64006400u) - 1032.0;
    made[i] = bitcast<u32>(pair * first);
    rest[i] = bitcast<u32>(pair * second);
  }
  bufferView<array<vec4<u32>>>(&memory, 0u)[at / 8u] = made;
  if (planes == 2u) { bufferView<array<vec4<u32>>>(&memory, 0u)[(at + plane) / 8u] = rest; }
}

// Words at the end of the memory, for any use.
fn put_word(at: u32, value: u32) { bufferView<array<u32>>(&memory, 0u)[MEMORY_BYTES / 4u - WORD_COUNT + at] = value; }
fn word_at(at: u32) -> u32 { return bufferView<array<u32>>(&memory, 0u)[MEMORY_BYTES / 4u - WORD_COUNT + at]; }

// The same for all invocations, and a barrier.
fn uniform_word_at(at: u32) -> u32 {
  return workgroupUniformLoad(&bufferView<array<u32>>(&memory, 0u)[MEMORY_BYTES / 4u - WORD_COUNT + at]);
}

fn left_at(at: u32, pitch: u32) -> Left {
  return subgroupMatrixLoad<Left, row_major>(bufferView<array<Half>>(&memory, 0u), at, pitch);
}

fn right_at(at: u32, pitch: u32) -> Right {
  return subgroupMatrixLoad<Right, col_major>(bufferView<array<Half>>(&memory, 0u), at, pitch);
}

fn right_across_at(at: u32, pitch: u32) -> Right {
  return subgroupMatrixLoad<Right, row_major>(bufferView<array<Half>>(&memory, 0u), at, pitch);
}

fn multiplied(left: Left, right: Right, sums: Sums) -> Sums {
  return subgroupMatrixMultiplyAccumulate(left, right, sums);
}

// Stores sums as 16 × 16 floats, from float `at` of the memory on.
fn put_sums(at: u32, sums: Sums) {
  subgroupMatrixStore<row_major>(bufferView<array<f32>>(&memory, 0u), at, sums, 16u);
}

// The same with rows of `pitch` floats; and such sums again.
fn put_rows_of_sums(at: u32, pitch: u32, sums: Sums) {
  subgroupMatrixStore<row_major>(bufferView<array<f32>>(&memory, 0u), at, sums, pitch);
}
fn rows_of_sums(at: u32, pitch: u32) -> Sums {
  return subgroupMatrixLoad<Sums, row_major>(bufferView<array<f32>>(&memory, 0u), at, pitch);
}
fn put_four_sums(at: u32, sums: vec4<f32>) { bufferView<array<vec4<f32>>>(&memory, 0u)[at / 4u] = sums; }

// Four of those floats.
fn sums_at(at: u32) -> vec4<f32> { return bufferView<array<vec4<f32>>>(&memory, 0u)[at / 4u]; }

// The largest of the values of some neighbouring invocations, 2, 4, 8 or 16; and their sum.
fn largest_of(value: f32, count: u32, local: u32) -> f32 {
  var found = max(value, subgroupShuffleXor(value, 1u));
  if (count > 2u) { found = max(found, subgroupShuffleXor(found, 2u)); }
  if (count > 4u) { found = max(found, subgroupShuffleXor(found, 4u)); }
  if (count > 8u) { found = max(found, subgroupShuffleXor(found, 8u)); }
  return found;
}

fn sum_of(value: f32, count: u32, local: u32) -> f32 {
  var found = value + subgroupShuffleXor(value, 1u);
  if (count > 2u) { found += subgroupShuffleXor(found, 2u); }
  if (count > 4u) { found += subgroupShuffleXor(found, 4u); }
  if (count > 8u) { found += subgroupShuffleXor(found, 8u); }
  return found;
}
