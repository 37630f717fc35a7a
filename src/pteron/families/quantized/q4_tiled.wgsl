//! use q4
//! use tile
//! loops: ceil(PART, STEP // 8) + 1
// A product with weights of few bits (lib/q4.wgsl) by tiles (lib/tile.wgsl), over PART words, a multiple of a
// step's. Every step brings STEP columns k of x and of the unpacked, scaled weights through workgroup memory,
// both with k outermost, so that an invocation reads its rows and columns as vec4s; meanwhile its share of the
// next step is on the way from global memory into registers.
const STEP = 16u; // k per step, a multiple of eight
const STEP_WORDS = STEP / 8u;
const IS_WHOLE = WORDS % STEP_WORDS == 0u; // no step reaches beyond a row's end

// What an invocation brings per step: vec4s of x, four k of a row, and words of weights, eight k of a column.
const X_COUNT = HEIGHT * STEP / 4u;
const W_COUNT = WIDTH * STEP / 8u;
const X_LOADS = (X_COUNT + WORKGROUP - 1u) / WORKGROUP;
const W_LOADS = (W_COUNT + WORKGROUP - 1u) / WORKGROUP;

// Rows of one k are a vec4 apart, so that stores of several k do not collide.
const X_PITCH = HEIGHT / 4u + 1u;
const W_PITCH = WIDTH / 4u + 1u;

var<workgroup> x_tile: array<vec4<f32>, STEP * X_PITCH>;
var<workgroup> w_tile: array<vec4<f32>, STEP * W_PITCH>;

@compute @workgroup_size(WORKGROUP)
fn main(
  @builtin(workgroup_id) group: vec3<u32>,
  @builtin(num_workgroups) groups: vec3<u32>,
  @builtin(local_invocation_index) local: u32,
) {
  let tile = tile_of(group, groups);
  if (tile.part >= PARTS) { return; }
  let own = place_of(local);
  let word_first = tile.part * PART;
  let word_end = min(word_first + PART, WORDS);
  var x_next: array<vec4<f32>, X_LOADS>;
  var w_next: array<Word, W_LOADS>;
  var scale_next: array<f32, W_LOADS>;
  var sums: array<vec4<f32>, TALL * QUADS_WIDE>;
  for (var base = word_first;; base += STEP_WORDS) {
    if (base < word_end) { // ask for this step's numbers
      //! unroll
      for (var i = 0u; i < X_LOADS; i++) {
        let at = local + i * WORKGROUP;
        let m = min(tile.m + at / (STEP / 4u), params.rows - 1u);
        let quad = 2u * base + at % (STEP / 4u);
        // Past the last word, weights are scaled by zero.
        x_next[i] = load(m, select(min(quad, 2u * WORDS - 1u), quad, IS_WHOLE));
      }
      //! unroll
      for (var i = 0u; i < W_LOADS; i++) {
        let at = local + i * WORKGROUP;
        let n = min(tile.n + column_at(at % WIDTH), params.columns - 1u);
        let word = base + at / WIDTH;
        let inside = select(min(word, WORDS - 1u), word, IS_WHOLE);
        w_next[i] = load_word(n, inside);
        scale_next[i] = select(0.0, scales[n * GROUPS + inside / GROUP], IS_WHOLE || word < WORDS);
      }
    }
    if (base > word_first) { // the step before it is in workgroup memory
      //! unroll
      for (var k = 0u; k < STEP; k++) {
        var left: array<vec4<f32>, QUADS_TALL>;
        var right: array<vec4<f32>, QUADS_WIDE>;
        //! unroll
        for (var q = 0u; q < QUADS_TALL; q++) { left[q] = x_tile[k * X_PITCH + own.y + q * DOWN]; }
        //! unroll
        for (var q = 0u; q < QUADS_WIDE; q++) { right[q] = w_tile[k * W_PITCH + own.x + q * ACROSS]; }
        //! unroll
        for (var t = 0u; t < TALL; t++) {
          //! unroll
          for (var q = 0u; q < QUADS_WIDE; q++) {
            sums[t * QUADS_WIDE + q] = fma(vec4(left[t / 4u][t % 4u]), right[q], sums[t * QUADS_WIDE + q]);
          }
        }
      }
    }
    if (base >= word_end) { break; }
    workgroupBarrier();
    //! unroll
    for (var i = 0u; i < X_LOADS; i++) {
      let at = local + i * WORKGROUP;
      if (X_COUNT % WORKGROUP == 0u || at < X_COUNT) {
        let m = at / (STEP / 4u);
        //! unroll
        for (var e = 0u; e < 4u; e++) {
          x_tile[(at % (STEP / 4u) * 4u + e) * X_PITCH + m / 4u][m % 4u] = x_next[i][e];
        }
      }
    }
    //! unroll
    for (var i = 0u; i < W_LOADS; i++) {
      let at = local + i * WORKGROUP;
      if (W_COUNT % WORKGROUP == 0u || at < W_COUNT) {
        let place = at % WIDTH;
        let low = unpack(w_next[i], 0u) * scale_next[i];
        let high = unpack(w_next[i], 4u) * scale_next[i];
        //! unroll
        for (var e = 0u; e < 4u; e++) {
          w_tile[(at / WIDTH * 8u + e) * W_PITCH + place / 4u][place % 4u] = low[e];
          w_tile[(at / WIDTH * 8u + e + 4u) * W_PITCH + place / 4u][place % 4u] = high[e];
        }
      }
    }
    workgroupBarrier();
  }
  //! unroll
  for (var t = 0u; t < TALL; t++) {
    //! unroll
    for (var s = 0u; s < WIDE; s++) {
      store_own(tile, own, t, s, sums[t * QUADS_WIDE + s / 4u][s % 4u]);
    }
  }
}
