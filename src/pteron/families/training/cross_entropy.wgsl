//! extent logits: rows * classes
//! extent labels: rows
//! extent most: rows
//! extent total: rows
//! extent losses: rows
//! extent slopes: rows * classes
// For logits [row][class], with the maximum m of a row and t = Σ exp(logits - m):
//
//     row_loss(row) = (m - logits[row, label] + log(t)) / n_valid
//     slope(i) = (exp(logits[i] - m) / t - (1 if i's class is the label, or else 0)) / n_valid
//
// and zero in rows with a negative label. One invocation computes one result of either, for `losses` or for `slopes`.
import package::wgsl::lib::index::{flat_index};
import package::wgsl::lib::logarithm::{log_of};
import package::wgsl::lib::nan::{nan};

alias X = f32;
alias L = i32;
alias R = f32;
const WORKGROUP = 64u;

struct Params {
  rows: u32,
  classes: u32,
  count: u32, // of results
  n_valid: f32,
}

@group(0) @binding(0) var<storage, read> logits: array<X>;
@group(0) @binding(1) var<storage, read> labels: array<L>;
@group(0) @binding(2) var<storage, read> most: array<f32>;
@group(0) @binding(3) var<storage, read> total: array<f32>;
@group(0) @binding(4) var<storage, read_write> losses: array<f32>;
@group(0) @binding(4) var<storage, read_write> slopes: array<R>;
@group(0) @binding(5) var<uniform> params: Params;

fn row_loss(row: u32) -> f32 {
  let label = i32(labels[row]);
  if (label < 0) { return 0.0; }
  let column = min(u32(label), params.classes - 1u);
  let loss = (most[row] - f32(logits[row * params.classes + column]) + log_of(total[row])) / params.n_valid;
  return select(nan(), loss, column == u32(label));
}

fn slope(i: u32) -> f32 {
  let row = i / params.classes;
  let label = i32(labels[row]);
  if (label < 0) { return 0.0; }
  let probability = exp(f32(logits[i]) - most[row]) / total[row];
  return (probability - f32(i % params.classes == u32(label))) / params.n_valid;
}

@compute @workgroup_size(WORKGROUP)
fn main(@builtin(global_invocation_id) id: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>) {
  let i = flat_index(id, groups);
  if (i >= params.count) { return; }
  @if(losses) losses[i] = row_loss(i);
  @else slopes[i] = R(slope(i));
}
