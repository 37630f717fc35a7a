//! loops: SUBGROUPS
//! extent peaks: 4 * groups[1]
// The peak of each workgroup of q4_digits.wgsl, of a single row: the maximum of its results, the first column that has
// it, and the sum of exp(result - maximum). A NaN counts as the lowest number but makes the sum NaN. The layout is that
// of picks in sample_merge.wgsl: a score, its column, and the logit of that column, here the score.
import package::wgsl::lib::nan::{LOWEST, is_nan, nan};

// Bits of the maximum, its column, bits of the maximum again, bits of the sum.
@group(0) @binding(25) var<storage, read_write> peaks: array<vec4<u32>>;

var<private> peak: f32 = LOWEST; // maximum of this invocation's results
var<private> peak_column: u32 = 0xffffffffu;
var<private> peak_sum: f32;
var<workgroup> subgroup_peaks: array<vec3<u32>, SUBGROUPS>;

// Notes a result.
fn note_peak(n: u32, value: f32) {
  let before = peak;
  let number = select(clamp(value, LOWEST, -LOWEST), LOWEST, is_nan(value));
  if (number > peak || peak_column == 0xffffffffu) { // columns come in order
    peak = number;
    peak_column = n;
  }
  let term = select(exp(number - peak), nan(), is_nan(value));
  peak_sum = peak_sum * exp(before - peak) + term;
}

// Called once at the end of a workgroup: merges its peaks.
fn put_peaks(block: u32, local: u32) {
  let most = subgroupMax(peak);
  let column = subgroupMin(select(0xffffffffu, peak_column, peak == most));
  let sum = subgroupAdd(peak_sum * exp(peak - most));
  if (local % SUBGROUP == 0u) {
    subgroup_peaks[local / SUBGROUP] = vec3(bitcast<u32>(most), column, bitcast<u32>(sum));
  }
  workgroupBarrier();
  if (local == 0u) {
    var greatest = most;
    var first = column;
    var total = sum;
    for (var i = 1u; i < SUBGROUPS; i++) {
      let found = subgroup_peaks[i];
      let other = bitcast<f32>(found.x);
      let raised = max(greatest, other);
      total = total * exp(greatest - raised) + bitcast<f32>(found.z) * exp(other - raised);
      first = select(first, min(first, found.y), other == greatest);
      first = select(first, found.y, other > greatest);
      greatest = raised;
    }
    peaks[block] = vec4(bitcast<u32>(greatest), first, bitcast<u32>(greatest), bitcast<u32>(total));
  }
}
