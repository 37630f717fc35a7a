//! loops: ceil(span, LANES) + ceil(span, BLOCK * LANES) + 8
// out[row, part] = finish(merge of take(x[row's k-th element]) over the part's k). A row is one element of the
// kept dims; its elements, those of the reduced dims, are cut into `parts` of `span`. LANES invocations share
// a part and merge values of type Lane: they add them up in blocks (lib/sums.wgsl), multiply them, or take the largest.
import package::wgsl::lib::rows::{LANES, Lane, WORKGROUP, larger, row_index, row_max, row_product, row_sum};
import package::wgsl::lib::sums::{BLOCK, carry};

alias X = f32;
alias R = f32;
override IS_LARGEST: bool = false;
override IS_PRODUCT: bool = false;
override IS_STRIDED: bool = false; // a row's elements are at even steps

struct Params {
  rows: u32,
  parts: u32, // per row
  length: u32, // elements per row
  span: u32, // elements per part
  count: u32, // elements per row of the tensor that is reduced, where x holds its parts already
  kept_shape: vec4<u32>, // both from the right, filled up with ones
  kept_strides: vec4<u32>,
  reduced_shape: vec4<u32>,
  reduced_strides: vec4<u32>,
}

@group(0) @binding(0) var<storage, read> x: array<X>;
@group(0) @binding(1) var<storage, read> of_row: array<f32>; // a number per row
@group(0) @binding(2) var<storage, read_write> out: array<R>;
@group(0) @binding(3) var<uniform> params: Params;
@group(0) @binding(4) var<storage, read> rest_of_row: array<f32>; // the same

fn offset(index: u32, shape: vec4<u32>, strides: vec4<u32>) -> u32 {
  let z = index / shape.w;
  let y = z / shape.z;
  let x = y / shape.y;
  return dot(vec4(x, y % shape.y, z % shape.z, index % shape.w), strides);
}

// The offset of a row's k-th element from its first.
fn walk(k: u32) -> u32 {
  @if(IS_STRIDED) return k * params.reduced_strides.w;
  @else return offset(k, params.reduced_shape, params.reduced_strides);
}

// May read of_row[row] and rest_of_row[row].
fn take(value: Lane, row: u32) -> Lane;
// May read params.count.
fn finish(total: Lane) -> Lane;

fn square(value: Lane) -> Lane { return value * value; }

// The initial value of every merge; `value` is an element of the part.
fn start(value: Lane) -> Lane {
  @if(IS_LARGEST) return value;
  @elif(IS_PRODUCT) return Lane(1);
  @else return Lane();
}

fn merge(a: Lane, b: Lane) -> Lane {
  @if(IS_LARGEST) return larger(a, b);
  @elif(IS_PRODUCT) return a * b;
  @else return a + b;
}

// What a lane has, with another block, the index-th: two sums, or a value and what changes none.
fn merge_block(merged: vec2<Lane>, block: Lane, index: u32) -> vec2<Lane> {
  @if(IS_LARGEST) return vec2(larger(merged.x, block));
  @elif(IS_PRODUCT) return vec2(merged.x * block, Lane(1));
  @else return carry(merged, block, index);
}

fn merge_lanes(value: Lane, local: u32) -> Lane {
  @if(IS_LARGEST) return row_max(value, local);
  @elif(IS_PRODUCT) return row_product(value, local);
  @else return row_sum(value, local);
}

@compute @workgroup_size(WORKGROUP)
fn main(
  @builtin(workgroup_id) group: vec3<u32>,
  @builtin(num_workgroups) groups: vec3<u32>,
  @builtin(local_invocation_index) local: u32,
) {
  let i = row_index(group, groups, local);
  let inside = i < params.rows * params.parts;
  let lane = local % LANES;
  let row = min(i / params.parts, params.rows - 1u);
  let first = i % params.parts * params.span;
  let end = select(0u, min(first + params.span, params.length), inside);
  let base = offset(row, params.kept_shape, params.kept_strides);
  let opening = start(take(Lane(x[base + walk(first)]), row));
  var merged = vec2(opening);
  for (var block = first + lane; block < end; block += BLOCK * LANES) {
    var of_block = opening;
    for (var k = block; k < min(block + BLOCK * LANES, end); k += LANES) {
      of_block = merge(of_block, take(Lane(x[base + walk(k)]), row));
    }
    merged = merge_block(merged, of_block, (block - first) / (BLOCK * LANES));
  }
  let total = merge_lanes(merge(merged.x, merged.y), local);
  if (inside && lane == 0u) { out[i] = R(finish(total)); }
}
