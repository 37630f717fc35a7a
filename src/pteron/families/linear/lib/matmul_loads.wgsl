// The tiles of a matrix product, numbered along the columns, then along the rows, then by slice, in a grid that may be
// folded; and what an invocation loads of a and b for every step of STEP k. The kernel declares HEIGHT, WIDTH and
// WORKGROUP.
import super::matmul::{batch_of, params};
import super::matmul_a::{A_ALONG, quad_of_a};
import super::matmul_b::{B_ALONG, quad_of_b};

override STEP: u32 = 16u; // k per step; the span of a part is a multiple of it
const A_LOADS = (HEIGHT * STEP / 4u + WORKGROUP - 1u) / WORKGROUP; // vec4s per invocation and step
const B_LOADS = (WIDTH * STEP / 4u + WORKGROUP - 1u) / WORKGROUP;

struct Tile {
  m: u32, // first row
  n: u32, // first column
  z: u32,
  slice: u32,
}

fn tile_of(group: vec3<u32>, groups: vec3<u32>) -> Tile {
  let index = group.x + group.y * groups.x;
  let across = (params.columns + WIDTH - 1u) / WIDTH;
  let down = (params.rows + HEIGHT - 1u) / HEIGHT;
  let slice = index / across / down;
  return Tile(index / across % down * HEIGHT, index % across * WIDTH, batch_of(slice), slice);
}

fn step_count(depth: u32) -> u32 { return (depth + STEP - 1u) / STEP; }

// The (lane, k) in a tile of `size` lanes, rows or columns, of the quad that is loaded as number `at`.
fn quad_at(at: u32, size: u32, is_along: bool) -> vec2<u32> {
  if (is_along) { return vec2(at / (STEP / 4u), at % (STEP / 4u) * 4u); }
  return vec2(at % (size / 4u) * 4u, at / (size / 4u));
}

// The vec4s that an invocation loads for a step.
struct Loads {
  a: array<vec4<f32>, A_LOADS>,
  b: array<vec4<f32>, B_LOADS>,
}

// Loads the share of the step that begins at `k` from global memory.
fn fetch(tile: Tile, k: u32, local: u32) -> Loads {
  var loads: Loads;
  //! unroll
  for (var i = 0u; i < A_LOADS; i++) {
    let at = quad_at(local + i * WORKGROUP, HEIGHT, A_ALONG);
    loads.a[i] = quad_of_a(tile.z, tile.m + at.x, k + at.y);
  }
  //! unroll
  for (var i = 0u; i < B_LOADS; i++) {
    let at = quad_at(local + i * WORKGROUP, WIDTH, B_ALONG);
    loads.b[i] = quad_of_b(tile.z, k + at.y, tile.n + at.x);
  }
  return loads;
}
