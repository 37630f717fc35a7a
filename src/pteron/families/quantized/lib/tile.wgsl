// Products by tiles: a workgroup of DOWN × ACROSS invocations computes HEIGHT rows by WIDTH columns of one part,
// TALL × WIDE outputs each, read from workgroup memory in quads that lie DOWN and ACROSS quads apart. Tiles
// are numbered along the columns, then along the rows, then by part, in a grid that may be folded.
const TALL = 8u; // multiples of four
const WIDE = 8u;
const DOWN = 16u; // a multiple of LANES_DOWN
const ACROSS = 16u; // and of LANES_ACROSS
const LANES_DOWN = 4u; // 32 neighbours are a rectangle, so that they read few different vec4s at a time
const LANES_ACROSS = 32u / LANES_DOWN;
const WORKGROUP = DOWN * ACROSS;
const HEIGHT = DOWN * TALL;
const WIDTH = ACROSS * WIDE;
const QUADS_TALL = TALL / 4u;
const QUADS_WIDE = WIDE / 4u;

struct Tile {
  m: u32, // its first row
  n: u32, // and column
  part: u32,
}

fn tile_of(group: vec3<u32>, groups: vec3<u32>) -> Tile {
  let index = group.x + group.y * groups.x;
  let across = (params.columns + WIDTH - 1u) / WIDTH;
  let down = (params.rows + HEIGHT - 1u) / HEIGHT;
  return Tile(index / across % down * HEIGHT, index % across * WIDTH, index / across / down);
}

// The first quad (column, row) of an invocation.
fn place_of(local: u32) -> vec2<u32> {
  let bundle = local / 32u;
  let lane = local % 32u;
  let x = bundle % (ACROSS / LANES_ACROSS) * LANES_ACROSS + lane % LANES_ACROSS;
  let y = bundle / (ACROSS / LANES_ACROSS) * LANES_DOWN + lane / LANES_ACROSS;
  return vec2(x, y);
}

// The column, within a tile, of what lies at a place of workgroup memory: neighbouring invocations, which read
// neighbouring vec4s, have neighbouring columns, so that what they store together lies together.
fn column_at(place: u32) -> u32 { return place / 4u + place % 4u * (WIDTH / 4u); }

// The column of an invocation's output s.
fn own_column(tile: Tile, own: vec2<u32>, s: u32) -> u32 {
  return tile.n + column_at((own.x + s / 4u * ACROSS) * 4u + s % 4u);
}

// Output (t, s) of an invocation, where the matrix has it.
fn store_own(tile: Tile, own: vec2<u32>, t: u32, s: u32, sum: f32) {
  let m = tile.m + (own.y + t / 4u * DOWN) * 4u + t % 4u;
  let n = own_column(tile, own, s);
  if (m < params.rows && n < params.columns) { store(tile.part, m, n, sum); }
}
