// lib/matrix_cores.wgsl without matrix cores: an invocation has eight of the 256 sums of its subgroup, which is 32 adjacent
// invocations, and their row of a left factor; a right factor is its place in memory, with its strides along k and along
// its columns. Slow; for tests.
alias Left = array<f32, 16>;
alias Right = vec3<u32>;
alias Sums = array<f32, 8>;
override MEMORY_BYTES: u32 = 8192u;
override WORD_COUNT: u32 = 4u;
override LOW_SCALE: f32 = 2048.0;

var<workgroup> memory: array<f32, MEMORY_BYTES / 2u>; // a float for each half
var<private> lane: u32;
var<private> length: u32; // of a row: 16, which compilers do not know, so that they do not unroll loops

fn begin_matrices(local: u32) {
  lane = local % 32u;
  length = 16u + local / 1024u;
}

// A number rounded to a half.
fn half_of(value: f32) -> f32 {
  let exponent = (bitcast<u32>(value) >> 23u) & 255u;
  let unit = bitcast<f32>((max(exponent, 113u) - 10u) << 23u); // below 2^-14 halves are multiples of 2^-24
  return round(value / unit) * unit;
}

fn put_halves(at: u32, value: vec4<f32>) {
  for (var i = 0u; i < 4u; i++) { memory[at + i] = half_of(value[i]); }
}

fn put_nibbles(at: u32, plane: u32, planes: u32, word: u32, scale: f32) {
  let high = bitcast<f32>((bitcast<u32>(scale) + 0x8000u) & 0xffff0000u);
  let first = half_of(select(high, scale, planes == 1u));
  let second = half_of((scale - high) * LOW_SCALE);
  for (var i = 0u; i < length / 2u; i++) {
    let weight = f32((word >> (4u * i)) & 15u) - 8.0;
    memory[at + i] = half_of(weight * first);
    if (planes == 2u) { memory[at + plane + i] = half_of(weight * second); }
  }
}

fn put_word(at: u32, value: u32) { memory[MEMORY_BYTES / 2u - WORD_COUNT + at] = f32(value); }
fn word_at(at: u32) -> u32 { return u32(memory[MEMORY_BYTES / 2u - WORD_COUNT + at]); }

fn uniform_word_at(at: u32) -> u32 { return u32(workgroupUniformLoad(&memory[MEMORY_BYTES / 2u - WORD_COUNT + at])); }

fn left_at(at: u32, pitch: u32) -> Left {
  var row: Left;
  for (var k = 0u; k < length; k++) { row[k] = memory[at + lane / 2u * pitch + k]; }
  return row;
}
fn right_at(at: u32, pitch: u32) -> Right { return vec3(at, 1u, pitch); }
fn right_across_at(at: u32, pitch: u32) -> Right { return vec3(at, pitch, 1u); }

fn multiplied(left: Left, right: Right, sums: Sums) -> Sums {
  var row = left;
  var made = sums;
  for (var i = 0u; i < length / 2u; i++) {
    let column = right.x + (lane * 8u + i) % 16u * right.z;
    for (var k = 0u; k < length; k++) {
      made[i] = fma(row[k], memory[column + k * right.y], made[i]);
    }
  }
  return made;
}

// A float takes the place of two halves.
fn put_sums(at: u32, sums: Sums) {
  for (var i = 0u; i < 8u; i++) { memory[2u * (at + lane * 8u + i)] = sums[i]; }
}

fn put_rows_of_sums(at: u32, pitch: u32, sums: Sums) {
  for (var i = 0u; i < 8u; i++) { memory[2u * (at + lane / 2u * pitch + lane % 2u * 8u + i)] = sums[i]; }
}
fn rows_of_sums(at: u32, pitch: u32) -> Sums {
  var sums: Sums;
  for (var i = 0u; i < 8u; i++) { sums[i] = memory[2u * (at + lane / 2u * pitch + lane % 2u * 8u + i)]; }
  return sums;
}
fn put_four_sums(at: u32, sums: vec4<f32>) {
  for (var i = 0u; i < 4u; i++) { memory[2u * (at + i)] = sums[i]; }
}

fn sums_at(at: u32) -> vec4<f32> {
  return vec4(memory[2u * at], memory[2u * at + 2u], memory[2u * at + 4u], memory[2u * at + 6u]);
}

// By words from the fifth on, one for each invocation.
fn largest_of(value: f32, count: u32, local: u32) -> f32 {
  let first = share(value, count, local);
  var found = value;
  for (var i = 0u; i < count; i++) { found = max(found, memory[first + i]); }
  workgroupBarrier();
  return found;
}

fn sum_of(value: f32, count: u32, local: u32) -> f32 {
  let first = share(value, count, local);
  var found = 0.0;
  for (var i = 0u; i < count; i++) { found += memory[first + i]; }
  workgroupBarrier();
  return found;
}

fn share(value: f32, count: u32, local: u32) -> u32 {
  let start = MEMORY_BYTES / 2u - WORD_COUNT + 4u;
  memory[start + local] = value;
  workgroupBarrier();
  return start + local / count * count;
}
