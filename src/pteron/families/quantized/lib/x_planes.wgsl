//! use x_source
//! extent gain: 4 * QUADS
// ROWS rows of x in workgroup memory, as whole numbers: PLANES planes of int8, and for each chunk of 32 the
// number that its sums with weights start from, and its unit. A chunk of a plane is two vec4s: a word has the
// digits of four even k, the next those of the odd ones between them, as two masks find them in a word of 4-bit
// weights. Rows are QUADS vec4s long and CELLS chunks in memory, zeros past the end. An invocation brings
// eight elements at a time, four invocations a chunk.
alias G = f32;

@group(0) @binding(8) var<storage, read> gain: array<vec4<G>>;

var<workgroup> planes: array<vec4<u32>, ROWS * 2u * PLANES * CELLS>;
var<workgroup> units: array<vec2<u32>, ROWS * CELLS>; // (where a chunk's sum starts, bits of its unit)

// What a norm does to x besides scaling.
fn weighted(quad: u32, value: vec4<f32>) -> vec4<f32> { return value; }

// The eight elements of x at a place, zeros past its end.
fn load(m: u32, place: u32) -> mat2x4<f32> {
  let quads = vec2(2u * place, 2u * place + 1u);
  let found = load_pair(m, min(quads, vec2(QUADS - 1u)));
  return mat2x4(select(vec4(0.0), found[0], quads.x < QUADS), select(vec4(0.0), found[1], quads.y < QUADS));
}

// The sum over the four invocations that share a chunk.
fn chunk_total(value: u32) -> u32 {
  let pair = value + subgroupShuffleXor(value, 1u);
  return pair + subgroupShuffleXor(pair, 2u);
}

// A plane of the eight at a place: a word of the even ones, and one of the odd.
fn put_plane(m: u32, plane: u32, place: u32, even: u32, odd: u32) {
  let at = ((m * PLANES + plane) * 2u + place / 2u % 2u) * CELLS + place / 4u;
  planes[at][place % 2u * 2u] = even;
  planes[at][place % 2u * 2u + 1u] = odd;
}
