//! use matmul
//! use matmul_a
//! use matmul_b
//! loops: ceil(span, STEP) * (1 + STEP * SIDE // WORKGROUP + 5 * STEP) + 20
// A matrix product (lib/matmul.wgsl). A workgroup of 16×16 invocations computes a tile of 64×64 outputs,
// 4×4 each, and brings a and b through workgroup memory, 16 columns of k at a time. Tiles are numbered along
// the columns, then along the rows, then by slice, in a grid that may be folded.
const SIDE = 64u;
const STEP = 16u;
const WORKGROUP = 256u;

// Both tiles have k outermost, so that a step reads four neighbours of each.
var<workgroup> a_tile: array<f32, STEP * SIDE>;
var<workgroup> b_tile: array<f32, STEP * SIDE>;

@compute @workgroup_size(WORKGROUP)
fn main(
  @builtin(workgroup_id) group: vec3<u32>,
  @builtin(num_workgroups) groups: vec3<u32>,
  @builtin(local_invocation_index) local: u32,
) {
  let tile = group.x + group.y * groups.x;
  let tiles_across = (params.columns + SIDE - 1u) / SIDE;
  let tiles_down = (params.rows + SIDE - 1u) / SIDE;
  let n_base = tile % tiles_across * SIDE;
  let m_base = tile / tiles_across % tiles_down * SIDE;
  let slice = tile / tiles_across / tiles_down;
  if (slice >= params.batch * params.parts) { return; }
  let z = batch_of(slice);
  let k_first = part_of(slice) * params.span;
  let k_end = min(k_first + params.span, params.depth);
  let m_lane = local / 16u * 4u;
  let n_lane = local % 16u * 4u;
  var sums = array<vec4<f32>, 4>();
  for (var k_base = k_first; k_base < k_end; k_base += STEP) {
    for (var i = local; i < STEP * SIDE; i += WORKGROUP) {
      let k = k_base + i % STEP;
      let m = m_base + i / STEP;
      let n = n_base + i / STEP;
      let inside_a = k < k_end && m < params.rows;
      let inside_b = k < k_end && n < params.columns;
      let k_there = min(k, k_end - 1u);
      let left = load_a(z, min(m, params.rows - 1u), k_there);
      let right = load_b(z, k_there, min(n, params.columns - 1u));
      a_tile[i % STEP * SIDE + i / STEP] = select(0.0, left, inside_a);
      b_tile[i % STEP * SIDE + i / STEP] = select(0.0, right, inside_b);
    }
    workgroupBarrier();
    for (var k = 0u; k < STEP; k++) {
      let at = k * SIDE + n_lane;
      let right = vec4(b_tile[at], b_tile[at + 1u], b_tile[at + 2u], b_tile[at + 3u]);
      for (var t = 0u; t < 4u; t++) { sums[t] += a_tile[k * SIDE + m_lane + t] * right; }
    }
    workgroupBarrier();
  }
  for (var t = 0u; t < 4u; t++) {
    let m = m_base + m_lane + t;
    for (var s = 0u; s < 4u; s++) {
      let n = n_base + n_lane + s;
      if (m < params.rows && n < params.columns) { store(slice, m, n, sums[t][s]); }
    }
  }
}
