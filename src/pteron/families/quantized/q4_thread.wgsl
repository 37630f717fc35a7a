//! loops: ceil(PART, 4) * (8 + WIDE) * (1 + TILE) + TILE * (1 + WIDE)
// A product with 4-bit weights (lib/q4.wgsl) without barriers, for software adapters. There each lane's load is a
// separate call that costs more than dozens of multiplications; so x stays in registers for many columns, and every
// unpacked weight is used for TILE rows.
//
// One invocation computes TILE rows of up to WIDE columns, `strips` apart, over PART words. It processes blocks of
// four words: it adds up the products of a block for each column, then adds the blocks.
import package::wgsl::lib::index::{flat_index};
import super::lib::q4::{GROUP, GROUPS, PART, PARTS, QUADS, WORDS, first_row, load, minimum, params, scaled, scales, store};
@if(IN_FOURS) import super::lib::q4::{load_words, unpack_words};
@else import super::lib::q4::{load_word, unpack};

alias Block = array<vec4<f32>, 8>; // the 32 elements of four words
const WORKGROUP = 8u; // the lanes of a vector, or of two
override TILE: u32 = 4u;
override WIDE: u32 = 64u;
override STRIPS: u32 = 16u; // minimum, so that every core has work; fewer if there are few columns
override NARROW: u32 = 8u; // minimum of columns per invocation

// Columns per invocation.
fn width(tiles: u32) -> u32 { return clamp(tiles * params.columns / STRIPS, NARROW, WIDE); }

// If groups are multiples of four words without minima, a scale applies to a block; otherwise to each word.
@if(minima) const BY_BLOCK = false;
@else const BY_BLOCK = GROUP % 4u == 0u;

fn block_scale(n: u32, word: u32) -> f32 {
  if (!BY_BLOCK) { return 1.0; }
  return scales[n * GROUPS + word / GROUP];
}

fn word_scale(n: u32, word: u32) -> f32 {
  if (BY_BLOCK) { return 1.0; }
  return scales[n * GROUPS + word / GROUP];
}

// Weights of four words. Those past a row's end are arbitrary: x is zero there.
@if(IN_FOURS) fn load_block(n: u32, first: u32) -> Block { return unpack_words(load_words(n, first)); }
@else fn load_block(n: u32, first: u32) -> Block {
  let b = min(first + 1u, WORDS - 1u);
  let c = min(first + 2u, WORDS - 1u);
  let d = min(first + 3u, WORDS - 1u);
  let words = array(load_word(n, first), load_word(n, b), load_word(n, c), load_word(n, d));
  let factors = vec4(word_scale(n, first), word_scale(n, b), word_scale(n, c), word_scale(n, d));
  let least = vec4(minimum(n, first), minimum(n, b), minimum(n, c), minimum(n, d));
  return Block(
    scaled(unpack(words[0], 0u), factors.x, least.x), scaled(unpack(words[0], 4u), factors.x, least.x),
    scaled(unpack(words[1], 0u), factors.y, least.y), scaled(unpack(words[1], 4u), factors.y, least.y),
    scaled(unpack(words[2], 0u), factors.z, least.z), scaled(unpack(words[2], 4u), factors.z, least.z),
    scaled(unpack(words[3], 0u), factors.w, least.w), scaled(unpack(words[3], 4u), factors.w, least.w),
  );
}

// Four elements of x; zeros past a row's end, in a block that is not full.
fn load_quad(m: u32, quad: u32) -> vec4<f32> {
  if (WORDS % 4u == 0u) { return load(m, quad); }
  return select(vec4(0.0), load(m, min(quad, QUADS - 1u)), quad < QUADS);
}

fn shifted(block: Block, next: vec4<f32>) -> Block {
  return Block(block[1], block[2], block[3], block[4], block[5], block[6], block[7], next);
}

fn product(a: Block, b: Block) -> f32 {
  let low = a[0] * b[0] + a[1] * b[1] + a[2] * b[2] + a[3] * b[3];
  let sum = low + (a[4] * b[4] + a[5] * b[5] + a[6] * b[6] + a[7] * b[7]);
  return (sum.x + sum.y) + (sum.z + sum.w);
}

@compute @workgroup_size(WORKGROUP)
fn main(@builtin(global_invocation_id) id: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>) {
  let i = flat_index(id, groups);
  let tiles = (params.rows + TILE - 1u) / TILE;
  let wide = width(tiles);
  let strips = (params.columns + wide - 1u) / wide;
  let n = i % strips;
  let first = i / strips % tiles * TILE;
  let part = i / strips / tiles;
  if (part >= PARTS) { return; }
  let columns = (params.columns - n + strips - 1u) / strips;
  let last = min(TILE, params.rows - first) - 1u;
  let blocks_end = (min((part + 1u) * PART, WORDS) + 3u) / 4u;
  let matrix = first_row(first);
  var sums: array<array<f32, TILE>, WIDE>;
  var waiting: array<Block, TILE>; // x, loaded one vec4 at a time; eight are a block
  for (var quad = 2u * part * PART; quad < 8u * blocks_end; quad++) {
    for (var t = 0u; t < TILE; t++) {
      waiting[t] = shifted(waiting[t], load_quad(first + min(t, last), quad));
    }
    if (quad % 8u != 7u) { continue; }
    let word = (quad - 7u) / 2u;
    for (var c = 0u; c < columns; c++) {
      let weights = load_block(matrix + n + c * strips, word);
      let scale = block_scale(matrix + n + c * strips, word);
      for (var t = 0u; t < TILE; t++) { sums[c][t] += scale * product(waiting[t], weights); }
    }
  }
  for (var t = 0u; t <= last; t++) {
    for (var c = 0u; c < columns; c++) { store(part, first + t, n + c * strips, sums[c][t]); }
  }
}
