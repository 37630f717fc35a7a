//! loops: STEPS * (1 + SPAN * (1 + COLUMNS)) + 9 * COLUMNS
// A product with 4-bit weights (lib/q4.wgsl) for few rows m. LANES invocations compute COLUMNS
// neighbouring n of one m: per step each takes SPAN words (eight weights each) of every column.
import package::wgsl::lib::rows::{LANES, WORKGROUP, row_index, row_sum};
import super::lib::q4::{GROUP, GROUPS, WORDS, first_row, load, load_word, minimum, params, scales, store, unpack};

override COLUMNS: u32 = 2u;
override SPAN: u32 = 2u;
const STEPS = (WORDS + LANES * SPAN - 1u) / (LANES * SPAN);

@compute @workgroup_size(WORKGROUP)
fn main(
  @builtin(workgroup_id) group: vec3<u32>,
  @builtin(num_workgroups) groups: vec3<u32>,
  @builtin(local_invocation_index) local: u32,
) {
  let bundle = row_index(group, groups, local);
  let bundles = (params.columns + COLUMNS - 1u) / COLUMNS; // per row m
  let m = min(bundle / bundles, params.rows - 1u);
  let first = bundle % bundles * COLUMNS;
  let lane = local % LANES;
  let matrix = first_row(m);
  var sums = array<f32, COLUMNS>();
  for (var step = 0u; step < STEPS; step++) {
    for (var s = 0u; s < SPAN; s++) {
      let word = (step * LANES + lane) * SPAN + s;
      if (WORDS % (LANES * SPAN) == 0u || word < WORDS) {
        let low = load(m, 2u * word);
        let high = load(m, 2u * word + 1u);
        for (var c = 0u; c < COLUMNS; c++) {
          let n = matrix + min(first + c, params.columns - 1u);
          let packed = load_word(n, word);
          let sum = dot(low, unpack(packed, 0u)) + dot(high, unpack(packed, 4u));
          sums[c] += sum * scales[n * GROUPS + word / GROUP];
          @if(minima) { sums[c] += minimum(n, word) * dot(low + high, vec4(1.0)); }
        }
      }
    }
  }
  for (var c = 0u; c < COLUMNS; c++) {
    let total = row_sum(sums[c], local);
    let n = first + c;
    if (lane == 0u && n < params.columns && bundle < bundles * params.rows) { store(0u, m, n, total); }
  }
}
