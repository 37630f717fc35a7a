// What follows a layer norm or a group norm: value · weight[c] + bias[c], where c is the channel of the row's k-th
// element. In a layer norm, each element of a row is a channel. In a group norm (BY_GROUPS), params.plane neighbours share
// a channel, and params.cycle rows have all channels.
alias W = f32;
alias V = f32;
override BY_GROUPS: bool = false;

@group(0) @binding(1) var<storage, read> weight: array<W>;
@group(0) @binding(2) var<storage, read> bias: array<V>;

fn channel(row: u32, k: u32) -> u32 {
  @if(BY_GROUPS) return row % params.cycle * (params.length / params.plane) + k / params.plane;
  @else return k;
}

fn affine(value: f32, c: u32) -> f32 {
  var result = value;
  @if(weight) result *= f32(weight[c]);
  @if(bias) result += f32(bias[c]);
  return result;
}
