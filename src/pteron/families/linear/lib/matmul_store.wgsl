//! extent out: (batch * rows - 1) * pitch + first + columns - OTHERS
//! extent out_b: rows * WIDTH_B
//! extent out_c: rows * (OTHERS - WIDTH_B)
//! extent partial: (parts * batch * rows - 1) * pitch + first + columns
// Finishes sums of a matrix product (lib/matmul.wgsl) and stores them; sums of parts as they are. The last OTHERS columns
// go to further outputs: WIDTH_B to out_b, the rest to out_c. BY_QUADS stores four columns at a time: the widths of all
// outputs, the first column and the number of columns must be multiples of four.
import super::matmul::{params, result};

alias R = f32;
override BY_QUADS: bool = false;
override OTHERS: u32 = 0u;
override WIDTH_B: u32 = 0u;

// What is stored at a time.
@if(BY_QUADS) const UNIT = 4u; // columns
@else const UNIT = 1u;
@if(BY_QUADS) alias Value = vec4<f32>;
@else alias Value = f32;
@if(BY_QUADS) alias Stored = vec4<R>;
@else alias Stored = R;

@group(0) @binding(3) var<storage, read_write> out: array<Stored>;
@group(0) @binding(8) var<storage, read_write> out_b: array<Stored>;
@group(0) @binding(9) var<storage, read_write> out_c: array<Stored>;
@group(0) @binding(3) var<storage, read_write> partial: array<Value>;

fn results(m: u32, n: u32, sums: Value) -> Value {
  @if(BY_QUADS) return vec4(
    result(m, n, sums.x),
    result(m, n + 1u, sums.y),
    result(m, n + 2u, sums.z),
    result(m, n + 3u, sums.w),
  );
  @else return result(m, n, sums);
}

@if(out_b)
fn put_other(m: u32, n: u32, value: Value) {
  @if(out_c) if (n >= WIDTH_B) {
    out_c[(m * (OTHERS - WIDTH_B) + n - WIDTH_B) / UNIT] = Stored(value);
    return;
  }
  out_b[(m * WIDTH_B + n) / UNIT] = Stored(value);
}

fn put(slice: u32, m: u32, n: u32, value: Value) {
  @if(out_b) if (n >= params.columns - OTHERS) {
    put_other(m, n - (params.columns - OTHERS), value);
    return;
  }
  out[((slice * params.rows + m) * params.pitch + params.first + n) / UNIT] = Stored(value);
}

fn store(slice: u32, m: u32, n: u32, sums: Value) {
  @if(partial) partial[((slice * params.rows + m) * params.pitch + params.first + n) / UNIT] = sums;
  @else put(slice, m, n, results(m, n, sums));
}

// Columns n to n + 3, as far as they exist.
fn store_quad(slice: u32, m: u32, n: u32, sums: vec4<f32>) {
  @if(BY_QUADS) if (n < params.columns) { store(slice, m, n, sums); }
  @else {
    //! unroll
    for (var e = 0u; e < 4u; e++) {
      if (n + e < params.columns) { store(slice, m, n + e, sums[e]); }
    }
  }
}
