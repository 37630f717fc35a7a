//! use q4
//! loops: ceil(PART, 4) * (1 + HEIGHT * 8 // WORKGROUP + STEP) + 5 * TALL
// A product with 4-bit weights (lib/q4.wgsl). A workgroup of 16×16 invocations computes a tile of 16·TALL
// rows by 64 columns, TALL × 4 outputs each, over PART words, a multiple of four. Every step brings 32 columns
// k of x and of the unpacked, scaled weights through workgroup memory, both with k outermost, so that an
// invocation reads its rows and columns as vec4s.
const WORKGROUP = 256u;
const TALL = 4u; // rows per invocation: 4 or 8
const HEIGHT = 16u * TALL; // rows of the tile
const WIDTH = 64u; // columns of the tile
const STEP = 32u; // k per step: four words of each weight row

var<workgroup> x_tile: array<vec4<f32>, STEP * HEIGHT / 4u>;
var<workgroup> w_tile: array<vec4<f32>, STEP * WIDTH / 4u>;

@compute @workgroup_size(WORKGROUP)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) local: u32) {
  let m_base = group.y * HEIGHT;
  let n_base = group.x * WIDTH;
  let m_own = local / 16u; // in vec4s: rows m_own·4 and, where TALL is 8, those 64 further
  let n_own = local % 16u; // in vec4s

  // Each invocation unpacks one word per step; neighbours take neighbouring rows, so that their stores do
  // not collide.
  let n_load = local % WIDTH;
  let w_load = local / WIDTH;
  let part_end = min((group.z + 1u) * PART, WORDS);
  let n_row = min(n_base + n_load, params.columns - 1u);

  var sums = array<vec4<f32>, TALL>();
  for (var word_base = group.z * PART; word_base < part_end; word_base += 4u) {
    let word = min(word_base + w_load, WORDS - 1u);
    let inside = word_base + w_load < WORDS;
    let scale = select(0.0, scales[n_row * GROUPS + word / GROUP], inside);
    let packed = load_word(n_row, word);
    let low = unpack(packed, 0u) * scale;
    let high = unpack(packed, 4u) * scale;
    let w_at = w_load * 8u * (WIDTH / 4u) + n_load / 4u;
    let w_part = n_load % 4u;
    w_tile[w_at][w_part] = low.x;
    w_tile[w_at + WIDTH / 4u][w_part] = low.y;
    w_tile[w_at + 2u * (WIDTH / 4u)][w_part] = low.z;
    w_tile[w_at + 3u * (WIDTH / 4u)][w_part] = low.w;
    w_tile[w_at + 4u * (WIDTH / 4u)][w_part] = high.x;
    w_tile[w_at + 5u * (WIDTH / 4u)][w_part] = high.y;
    w_tile[w_at + 6u * (WIDTH / 4u)][w_part] = high.z;
    w_tile[w_at + 7u * (WIDTH / 4u)][w_part] = high.w;
    for (var i = 0u; i < HEIGHT * 8u / WORKGROUP; i++) {
      let m = (local + i * WORKGROUP) % HEIGHT;
      let piece = (local + i * WORKGROUP) / HEIGHT; // of the eight vec4s a row has in this step
      let quad = word_base * 2u + piece;
      let row = min(m_base + m, params.rows - 1u);
      let value = load(row, min(quad, 2u * WORDS - 1u)); // past the last word, weights are scaled by zero
      let x_at = piece * HEIGHT + m / 4u;
      let x_part = m % 4u;
      x_tile[x_at][x_part] = value.x;
      x_tile[x_at + HEIGHT / 4u][x_part] = value.y;
      x_tile[x_at + HEIGHT / 2u][x_part] = value.z;
      x_tile[x_at + 3u * HEIGHT / 4u][x_part] = value.w;
    }
    workgroupBarrier();
    for (var k = 0u; k < STEP; k++) {
      let right = w_tile[k * (WIDTH / 4u) + n_own];
      let left = x_tile[k * (HEIGHT / 4u) + m_own];
      sums[0] += left.x * right;
      sums[1] += left.y * right;
      sums[2] += left.z * right;
      sums[3] += left.w * right;
      if (TALL == 8u) {
        let lower = x_tile[k * (HEIGHT / 4u) + m_own + 16u];
        sums[TALL - 4u] += lower.x * right;
        sums[TALL - 3u] += lower.y * right;
        sums[TALL - 2u] += lower.z * right;
        sums[TALL - 1u] += lower.w * right;
      }
    }
    workgroupBarrier();
  }
  for (var t = 0u; t < TALL; t++) {
    let m = m_base + m_own * 4u + t % 4u + t / 4u * 64u;
    for (var s = 0u; s < 4u; s++) {
      let n = n_base + n_own * 4u + s;
      if (m < params.rows && n < params.columns) { store(group.z, m, n, sums[t][s]); }
    }
  }
}
