//! loops: 2 * ceil(rows, WORKGROUP) + ceil(rows // HEIGHT + MATRICES, WORKGROUP)
//! loops: ceil(MATRICES, WORKGROUP) * (2 + MATRICES) + rows // HEIGHT + MATRICES
//! extent experts: rows
//! extent order: rows
//! extent band_table: 4 * (rows // HEIGHT + MATRICES)
// Orders rows by the matrix that each is multiplied with, and cuts those of each matrix into bands of at most HEIGHT
// rows for tiles (lib/rows_in_order.wgsl): order[place] is a row, and a band is (first place, end of the places of its
// matrix, matrix). Full bands come first: tiles with less work fill the gaps at the end. The bands after the last are
// empty. One workgroup. Rows of one matrix are in no particular order.
override MATRICES: u32 = 8u;
override HEIGHT: u32 = 64u;
override WORKGROUP: u32 = 256u;

struct Params {
  rows: u32,
}

@group(0) @binding(0) var<storage, read> experts: array<i32>;
@group(0) @binding(1) var<storage, read_write> order: array<u32>;
@group(0) @binding(2) var<storage, read_write> band_table: array<vec4<u32>>;
@group(0) @binding(3) var<uniform> params: Params;

var<workgroup> counts: array<atomic<u32>, MATRICES>;
var<workgroup> places: array<atomic<u32>, MATRICES>; // the next free one of each matrix

fn matrix_of(row: u32) -> u32 { return min(u32(experts[row]), MATRICES - 1u); }

@compute @workgroup_size(WORKGROUP)
fn main(@builtin(local_invocation_index) local: u32) {
  for (var i = local; i < params.rows / HEIGHT + MATRICES; i += WORKGROUP) { band_table[i] = vec4(0u); }
  for (var i = local; i < MATRICES; i += WORKGROUP) { atomicStore(&counts[i], 0u); }
  storageBarrier();
  workgroupBarrier();
  for (var row = local; row < params.rows; row += WORKGROUP) { atomicAdd(&counts[matrix_of(row)], 1u); }
  workgroupBarrier();
  for (var matrix = local; matrix < MATRICES; matrix += WORKGROUP) {
    var place = 0u;
    var band = 0u; // full ones before it
    var rest = 0u; // all full ones, and the others before it
    for (var other = 0u; other < MATRICES; other++) {
      let count = atomicLoad(&counts[other]);
      rest += count / HEIGHT;
      if (other < matrix) {
        place += count;
        band += count / HEIGHT;
        rest += min(count % HEIGHT, 1u);
      }
    }
    atomicStore(&places[matrix], place);
    let end = place + atomicLoad(&counts[matrix]);
    for (; place < end; place += HEIGHT) {
      let is_full = place + HEIGHT <= end;
      band_table[select(rest, band, is_full)] = vec4(place, end, matrix, 0u);
      band++;
    }
  }
  workgroupBarrier();
  for (var row = local; row < params.rows; row += WORKGROUP) { order[atomicAdd(&places[matrix_of(row)], 1u)] = row; }
}
