//! extent k_out: (count // (work * all * steps) - 1) * out_stride + (RING or cache_start + steps) * key_heads * width
//! extent v_out: (count // (work * all * steps) - 1) * out_stride + (RING or cache_start + steps) * key_heads * width
//! extent cosines: (start + steps - 1) * angle_strides[0] + (heads - 1) * angle_strides[1] + columns
//! extent sines: (start + steps - 1) * angle_strides[0] + (heads - 1) * angle_strides[1] + columns
// Rotates queries and keys by their position, and copies values. Pairs of a head's elements become
// (u, v) -> (u·cos - v·sin, u·sin + v·cos), the angle by step, head and pair; the first `rotary` elements of a
// head are rotated, the rest are copied. Tensors are [batch, steps, heads, width] (lib/rope_heads.wgsl). Keys and values
// are written from step `cache_start` on: to a cache that has room for more steps, or to a separate tensor. One
// invocation processes one pair, or one element that is not rotated, of a head of q, k or v.
import package::wgsl::lib::index::{flat_index};
import package::wgsl::lib::rope_heads::{move_pair};
import super::lib::out_base::{out_base};

alias C = f32;
const WORKGROUP = 64u;

struct Params {
  count: u32,
  work: u32, // pairs, and elements that are copied, of a head
  all: u32, // heads of a step: of q, of k, of v
  steps: u32,
  heads: u32,
  key_heads: u32,
  width: u32,
  rotary: u32,
  columns: u32, // of the tables that a head reads
  start: i32, // the tables' row of the first step
  cache_start: i32, // of the first step, among those of k_out and v_out
  out_stride: u32, // elements between the batches of k_out, and of v_out
  angle_strides: vec2<u32>, // of (step, head), in elements of the tables
}

@group(0) @binding(3) var<storage, read> cosines: array<C>;
@group(0) @binding(4) var<storage, read> sines: array<C>;
@group(0) @binding(8) var<uniform> params: Params;

@compute @workgroup_size(WORKGROUP)
fn main(@builtin(global_invocation_id) id: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>) {
  let i = flat_index(id, groups);
  if (i >= params.count) { return; }
  let pair = i % params.work;
  let head = i / params.work % params.all;
  let row = i / params.work / params.all; // a step of a batch
  move_pair(row, head, pair);
}
