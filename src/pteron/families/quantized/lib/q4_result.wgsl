//! extent bias: columns
//! extent residual: rows * columns
//! extent x_scales: rows
//! extent out: rows * (columns - OTHERS)
//! extent out_b: rows * WIDTH_B
//! extent out_c: rows * (OTHERS - WIDTH_B)
//! extent partial: PARTS * rows * columns
// Finishes sums over k, of all kernels with weights of few bits: out[m, n] = sum · x_scales[m] + bias[n] + residual[m, n].
// x_scales are the steps of int8 activations. If gated, the last OTHERS columns are the values of the others. If not, they go
// to further outputs: out_b has the first WIDTH_B of them, out_c the rest; or columns are queries, keys and values
// (lib/q4_rope.wgsl, whose `put` replaces the one here).
//
// If k is deep, a launch computes the sums of PARTS parts of it, partial[part][m][n], and q4_merge.wgsl finishes. BY_QUADS
// finishes four adjacent columns at a time, for outputs whose widths are multiples of four.
//
// Tiles call store_quad or store_gated, threads store, merges `result` and `put`; all finish in `result`, where an epilogue
// goes. q4_digits.wgsl alone calls `added` and `put`, and has its own place for it.
import super::q4_params::{params};
import super::silu::{silu, silu_quad};
@if(q_out) import super::q4_rope::{put};

alias X = f32; // of x, and x_scales
alias D = f32; // of the bias
alias R = f32; // of the residual and of outputs
override BY_QUADS: bool = false;
override PARTS: u32 = 1u;
override OTHERS: u32 = 0u; // columns
override WIDTH_B: u32 = 0u; // columns

// What is finished at a time.
@if(BY_QUADS) const UNIT = 4u; // columns
@else const UNIT = 1u;
@if(BY_QUADS) alias Value = vec4<f32>;
@else alias Value = f32;
@if(BY_QUADS) alias Bias = vec4<D>;
@else alias Bias = D;
@if(BY_QUADS) alias Stored = vec4<R>;
@else alias Stored = R;

@group(0) @binding(3) var<storage, read> bias: array<Bias>;
@group(0) @binding(4) var<storage, read> x_scales: array<X>;
@group(0) @binding(6) var<storage, read_write> out: array<Stored>;
@group(0) @binding(20) var<storage, read> residual: array<Stored>;
@group(0) @binding(21) var<storage, read_write> out_b: array<Stored>;
@group(0) @binding(22) var<storage, read_write> out_c: array<Stored>;
@group(0) @binding(6) var<storage, read_write> partial: array<Value>;

fn added(m: u32, n: u32) -> Value {
  @if(bias && residual) return Value(bias[n / UNIT]) + Value(residual[(m * params.columns + n) / UNIT]);
  @elif(bias) return Value(bias[n / UNIT]);
  @elif(residual) return Value(residual[(m * params.columns + n) / UNIT]);
  @else return Value();
}

fn result(m: u32, n: u32, sum: Value) -> Value {
  @if(x_scales) return sum * f32(x_scales[m]) + added(m, n);
  @else return sum + added(m, n);
}

// silu(gate) · value, where the columns of values follow those of their gates.
fn gated(m: u32, n: u32, gate: Value, value: Value) -> Value {
  @if(BY_QUADS) return silu_quad(result(m, n, gate)) * result(m, n + OTHERS, value);
  @else return silu(result(m, n, gate)) * result(m, n + OTHERS, value);
}

@if(!q_out)
fn put(m: u32, n: u32, value: Value) {
  let width = params.columns - OTHERS;
  @if(out_b) if (n >= width) {
    put_other(m, n - width, value);
    return;
  }
  out[(m * width + n) / UNIT] = Stored(value);
}

@if(out_b)
fn put_other(m: u32, n: u32, value: Value) {
  @if(out_c) if (n >= WIDTH_B) {
    out_c[(m * (OTHERS - WIDTH_B) + n - WIDTH_B) / UNIT] = Stored(value);
    return;
  }
  out_b[(m * WIDTH_B + n) / UNIT] = Stored(value);
}

fn store(part: u32, m: u32, n: u32, sum: Value) {
  @if(partial) partial[((part * params.rows + m) * params.columns + n) / UNIT] = sum;
  @else put(m, n, result(m, n, sum));
}

// Four neighbouring columns, up to the last one.
fn store_quad(part: u32, m: u32, n: u32, totals: vec4<f32>) {
  @if(BY_QUADS) store(part, m, n, totals);
  @else {
    //! unroll
    for (var e = 0u; e < 4u; e++) {
      if (n + e < params.columns) { store(part, m, n + e, totals[e]); }
    }
  }
}

@if(!BY_QUADS)
fn store_gated_one(m: u32, n: u32, gate: f32, value: f32) {
  if (n < OTHERS) { put(m, n, gated(m, n, gate, value)); }
}

fn store_gated(m: u32, n: u32, gate: vec4<f32>, value: vec4<f32>) {
  @if(BY_QUADS) put(m, n, gated(m, n, gate, value));
  @else {
    //! unroll
    for (var e = 0u; e < 4u; e++) { store_gated_one(m, n + e, gate[e], value[e]); }
  }
}

// The same of half a quad.
fn store_gated_pair(m: u32, n: u32, gate: vec2<f32>, value: vec2<f32>) {
  @if(BY_QUADS) {
    let element = n % 4u;
    let gates = result(m, n - element, gate.xyxy);
    let values = result(m, n - element + OTHERS, value.xyxy);
    let opened = select(gates.zw, gates.xy, element == 0u);
    let made = vec2(silu(opened.x), silu(opened.y)) * select(values.zw, values.xy, element == 0u);
    out[(m * OTHERS + n) / 4u][element] = R(made.x);
    out[(m * OTHERS + n) / 4u][element + 1u] = R(made.y);
  }
  @else {
    store_gated_one(m, n, gate.x, value.x);
    store_gated_one(m, n + 1u, gate.y, value.y);
  }
}
