//! loops: ceil(COLUMN_LANES * WIDTH, WORKGROUP) * (1 + ceil(PART, GROUP * COLUMN_LANES))
//! extent weight_sums: columns * GROUPS
// The correction of a tile's sums (lib/tile.wgsl) for the zero points of x. Σ zero · w · scale over the k of a part
// is zero[m] · offset[n], with offset = Σ scale · Σ w over the groups of column n. So the loop over k ignores zero
// points. If zero points are large and x - zero is small, the subtraction cancels some bits. `scales`, GROUP, GROUPS, PART,
// IS_WHOLE, WIDTH and WORKGROUP are the kernel's.
import super::tile::{Tile, weights_row};

const PART_GROUPS = PART / GROUP;
const COLUMN_LANES = (WORKGROUP + WIDTH - 1u) / WIDTH; // invocations that share a column's groups

@group(0) @binding(9) var<storage, read> weight_sums: array<i32>; // Σ w [n][group]

var<workgroup> offsets: array<vec4<f32>, COLUMN_LANES * WIDTH / 4u>;

// Stores the offsets of a tile's columns in workgroup memory, each as COLUMN_LANES partial sums.
fn put_offsets(tile: Tile, local: u32) {
  for (var at = local; at < COLUMN_LANES * WIDTH; at += WORKGROUP) {
    let row = weights_row(tile, at % WIDTH) * GROUPS;
    var offset = 0.0;
    for (var i = at / WIDTH; i < PART_GROUPS; i += COLUMN_LANES) {
      let index = tile.part * PART_GROUPS + i;
      if (IS_WHOLE || index < GROUPS) {
        offset = fma(f32(weight_sums[row + index]), scales[row + index], offset);
      }
    }
    offsets[at / 4u][at % 4u] = offset;
  }
}

// The offsets of a quad of columns.
fn offset_of(quad: u32) -> vec4<f32> {
  var total = vec4(0.0);
  //! unroll
  for (var i = 0u; i < COLUMN_LANES; i++) { total += offsets[i * (WIDTH / 4u) + quad]; }
  return total;
}
