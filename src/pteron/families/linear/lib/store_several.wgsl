//! extent out: rows * WIDTH_A
//! extent out_b: rows * WIDTH_B
//! extent out_c: rows * WIDTH_C
// As store_one.wgsl, for two or three outputs that share the columns of one product.
alias R = f32;
const WIDTH_A = 1u;
const WIDTH_B = 1u;
const WIDTH_C = 0u; // no third output

@group(0) @binding(3) var<storage, read_write> out: array<R>;
@group(0) @binding(8) var<storage, read_write> out_b: array<R>;
@group(0) @binding(9) var<storage, read_write> out_c: array<R>;

fn store_third(at: u32, value: f32) { out_c[at] = R(value); }

fn store(slice: u32, m: u32, n: u32, sum: f32) {
  let value = result(m, n, sum);
  if (n < WIDTH_A) {
    out[m * WIDTH_A + n] = R(value);
  } else if (n < WIDTH_A + WIDTH_B) {
    out_b[m * WIDTH_B + n - WIDTH_A] = R(value);
  } else {
    store_third(m * WIDTH_C + n - WIDTH_A - WIDTH_B, value);
  }
}

// Columns n to n + 3, as far as they exist.
fn store_quad(slice: u32, m: u32, n: u32, totals: vec4<f32>) {
  //! unroll
  for (var e = 0u; e < 4u; e++) {
    if (n + e < params.columns) { store(slice, m, n + e, totals[e]); }
  }
}
