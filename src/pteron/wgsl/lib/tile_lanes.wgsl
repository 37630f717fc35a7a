// Products by tiles: a workgroup of DOWN × ACROSS invocations computes HEIGHT rows by WIDTH columns, TALL × WIDE outputs
// each. The quads of rows of an invocation are DOWN quads apart, its quads of columns ACROSS quads.
override TALL: u32 = 8u; // a multiple of four
override WIDE: u32 = 8u; // 4 or 8
override DOWN: u32 = 16u; // a multiple of LANES_DOWN
override ACROSS: u32 = 16u; // a multiple of LANES_ACROSS
override LANES_DOWN: u32 = 4u; // 32 adjacent invocations form a rectangle, so that together they read few different vec4s
const LANES_ACROSS = 32u / LANES_DOWN;
const WORKGROUP = DOWN * ACROSS;
const HEIGHT = DOWN * TALL;
const WIDTH = ACROSS * WIDE;
const QUADS_TALL = TALL / 4u;
const IS_HALVED = WIDE == 8u; // an invocation has columns in both halves of a tile

// The first quad (column, row) of an invocation.
fn position_of(local: u32) -> vec2<u32> {
  let bundle = local / 32u;
  let lane = local % 32u;
  let x = bundle % (ACROSS / LANES_ACROSS) * LANES_ACROSS + lane % LANES_ACROSS;
  let y = bundle / (ACROSS / LANES_ACROSS) * LANES_DOWN + lane / LANES_ACROSS;
  return vec2(x, y);
}
