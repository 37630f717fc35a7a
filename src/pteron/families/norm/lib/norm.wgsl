// What norms of rows of `length` elements have in common: out[k] = (x[k] - mean) · rstd · weight[c] + bias[c], where c is the
// element's channel and rstd = 1 / sqrt(variance + eps). The row's mean and rstd are results too; an RMS norm has neither,
// and takes the mean of its squares for the variance. In a layer norm, each element of a row is a channel. In a group norm
// (BY_GROUPS), params.plane neighbours share a channel, and params.cycle rows have all channels.
alias X = f32; // of x
alias W = f32; // of the weight
alias V = f32; // of the bias
alias R = f32; // of the result
alias S = f32; // of mean and rstd
override BY_GROUPS: bool = false;

struct Params {
  rows: u32,
  length: u32,
  eps: f32,
  @if(BY_GROUPS) cycle: u32, // rows that contain all channels once
  @if(BY_GROUPS) plane: u32, // elements that share a channel
}

@group(0) @binding(0) var<storage, read> x: array<X>;
@group(0) @binding(1) var<storage, read> weight: array<W>;
@group(0) @binding(2) var<storage, read> bias: array<V>;
@group(0) @binding(3) var<storage, read_write> out: array<R>;
@group(0) @binding(4) var<storage, read_write> mean: array<S>;
@group(0) @binding(5) var<storage, read_write> rstd: array<S>;
@group(0) @binding(6) var<uniform> params: Params;

fn channel(row: u32, k: u32) -> u32 {
  @if(BY_GROUPS) return row % params.cycle * (params.length / params.plane) + k / params.plane;
  @else return k;
}

// Stores element k of a row.
fn put(row: u32, k: u32, value: f32) {
  var result = value;
  @if(weight) result *= f32(weight[channel(row, k)]);
  @if(bias) result += f32(bias[channel(row, k)]);
  out[row * params.length + k] = R(result);
}

fn put_statistics(row: u32, center: f32, scale: f32) {
  @if(mean) {
    mean[row] = S(center);
    rstd[row] = S(scale);
  }
}
