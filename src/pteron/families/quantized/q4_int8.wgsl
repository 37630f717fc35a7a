//! use q4_sizes
//! use q4_result
//! use words
//! use tile
//! loops: ceil(PART, STEP) + 1 + ceil(HEIGHT, WORKGROUP)
//! extent x: 2 * rows * WORDS
//! extent scales: columns * GROUPS
//! extent x_zeros: rows
//! extent weight_sums: (GROUPS - 1) * SUMS_PITCH + columns
// A product of int8 activations with 4-bit weights by tiles (lib/tile.wgsl):
// out[m, n] = x_scale[m] · Σ (x[m, k] - zero[m]) · w[n, k] · scale[n, k / group] + added(n).
//
// Within a group the sum of x · w is an integer, from which zero · Σ w is taken before the scale. x comes from
// q4_quantize.wgsl: a pair of words holds the even and the odd ones of eight, as masks find them in a word of
// weights. Every step brings STEP words of each row through workgroup memory, k outermost, into the one of two
// buffers that is not being read. PART is a multiple of GROUP, GROUP one of STEP, WORDS one of GROUP.
alias Z = i32;
const WORDS = 8u;
const PITCH = 8u;
const GROUP = 4u;
const GROUPS = WORDS / GROUP;
const PART = 8u;
const SUMS_PITCH = 8u; // weight_sums from one group to the next
const STEP = 4u;
const SUM_ZERO = 0x4b400000; // a sum less than 2^22 from here is, by its bits, a float as far from 1.5 · 2^23

const X_COUNT = HEIGHT * STEP; // pairs of words per step
const W_COUNT = WIDTH * STEP;
const X_LOADS = (X_COUNT + WORKGROUP - 1u) / WORKGROUP;
const W_LOADS = (W_COUNT + WORKGROUP - 1u) / WORKGROUP;
const X_PITCH = HEIGHT / 4u + 1u; // vec4s from one word to the next
const W_PITCH = WIDTH / 4u + 1u;
const X_BUFFER = 2u * STEP * X_PITCH;
const W_BUFFER = 2u * STEP * W_PITCH;

@group(0) @binding(0) var<storage, read> x: array<vec2<u32>>;
@group(0) @binding(2) var<storage, read> scales: array<f32>;
@group(0) @binding(5) var<storage, read> x_zeros: array<Z>;
@group(0) @binding(9) var<storage, read> weight_sums: array<i32>;

var<workgroup> x_tile: array<vec4<u32>, 2u * X_BUFFER>;
var<workgroup> w_tile: array<vec4<u32>, 2u * W_BUFFER>;
var<workgroup> zeros: array<vec4<i32>, HEIGHT / 4u>;

// Four nibbles in the lower halves of bytes, stored as their value plus 8, as int8.
fn signed_bytes(nibbles: u32) -> u32 {
  return (((nibbles & 0x0f0f0f0fu) | 0x80808080u) - 0x08080808u) ^ 0x80808080u;
}

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
  for (var m = local; m < HEIGHT; m += WORKGROUP) {
    zeros[m / 4u][m % 4u] = i32(x_zeros[min(tile.m + m, params.rows - 1u)]);
  }
  var x_next: array<vec2<u32>, X_LOADS>;
  var w_next: array<u32, W_LOADS>;
  var totals: array<f32, TALL * WIDE>;
  var sums: array<i32, TALL * WIDE>;
  //! unroll
  for (var i = 0u; i < TALL * WIDE; i++) { sums[i] = SUM_ZERO; }
  for (var base = word_first;; base += STEP) {
    let buffer = (base / STEP) % 2u;
    if (base < word_end) { // ask for this step's words
      //! unroll
      for (var i = 0u; i < X_LOADS; i++) {
        let at = local + i * WORKGROUP;
        let m = min(tile.m + at / STEP, params.rows - 1u);
        x_next[i] = x[m * WORDS + base + at % STEP];
      }
      //! unroll
      for (var i = 0u; i < W_LOADS; i++) {
        let at = local + i * WORKGROUP;
        let n = min(tile.n + column_at(at % WIDTH), params.columns - 1u);
        w_next[i] = load_word(n, min(base + at / WIDTH, WORDS - 1u));
      }
    }
    if (base > word_first) { // the step before it is in workgroup memory
      let index = (base - STEP) / GROUP;
      let is_last = base % GROUP == 0u;
      var factors: array<f32, WIDE>;
      var weights_added: array<i32, WIDE>;
      if (is_last) {
        //! unroll
        for (var s = 0u; s < WIDE; s++) {
          let n = min(own_column(tile, own, s), params.columns - 1u);
          factors[s] = scales[n * GROUPS + index];
          weights_added[s] = weight_sums[index * SUMS_PITCH + n];
        }
      }
      //! unroll
      for (var k = 0u; k < 2u * STEP; k++) {
        var left: array<vec4<u32>, QUADS_TALL>;
        var right: array<vec4<u32>, QUADS_WIDE>;
        //! unroll
        for (var q = 0u; q < QUADS_TALL; q++) {
          left[q] = x_tile[(1u - buffer) * X_BUFFER + k * X_PITCH + own.y + q * DOWN];
        }
        //! unroll
        for (var q = 0u; q < QUADS_WIDE; q++) {
          right[q] = w_tile[(1u - buffer) * W_BUFFER + k * W_PITCH + own.x + q * ACROSS];
        }
        //! unroll
        for (var t = 0u; t < TALL; t++) {
          //! unroll
          for (var s = 0u; s < WIDE; s++) {
            sums[t * WIDE + s] += dot4I8Packed(left[t / 4u][t % 4u], right[s / 4u][s % 4u]);
          }
        }
      }
      if (is_last) { // of its group
        //! unroll
        for (var t = 0u; t < TALL; t++) {
          let zero = zeros[own.y + t / 4u * DOWN][t % 4u];
          //! unroll
          for (var s = 0u; s < WIDE; s++) {
            let sum = bitcast<f32>(sums[t * WIDE + s] - zero * weights_added[s]) - 12582912.0;
            totals[t * WIDE + s] = fma(sum, factors[s], totals[t * WIDE + s]);
            sums[t * WIDE + s] = SUM_ZERO;
          }
        }
      }
    }
    if (base >= word_end) { break; }
    //! unroll
    for (var i = 0u; i < X_LOADS; i++) {
      let at = local + i * WORKGROUP;
      if (X_COUNT % WORKGROUP == 0u || at < X_COUNT) {
        let m = at / STEP;
        let place = buffer * X_BUFFER + 2u * (at % STEP) * X_PITCH + m / 4u;
        x_tile[place][m % 4u] = x_next[i].x;
        x_tile[place + X_PITCH][m % 4u] = x_next[i].y;
      }
    }
    //! unroll
    for (var i = 0u; i < W_LOADS; i++) {
      let at = local + i * WORKGROUP;
      if (W_COUNT % WORKGROUP == 0u || at < W_COUNT) {
        let column = at % WIDTH;
        let place = buffer * W_BUFFER + 2u * (at / WIDTH) * W_PITCH + column / 4u;
        w_tile[place][column % 4u] = signed_bytes(w_next[i]);
        w_tile[place + W_PITCH][column % 4u] = signed_bytes(w_next[i] >> 4u);
      }
    }
    workgroupBarrier();
  }
  //! unroll
  for (var t = 0u; t < TALL; t++) {
    //! unroll
    for (var s = 0u; s < WIDE; s++) { store_own(tile, own, t, s, totals[t * WIDE + s]); }
  }
}
