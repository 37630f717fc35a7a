//! extent out: rows * WIDTH_A
//! extent out_b: rows * WIDTH_B
//! extent out_c: rows * WIDTH_C
// As store_several.wgsl, for outputs whose widths are multiples of four.
alias R = f32;
const WIDTH_A = 4u;
const WIDTH_B = 4u;
const WIDTH_C = 0u; // no third output

@group(0) @binding(3) var<storage, read_write> out: array<vec4<R>>;
@group(0) @binding(8) var<storage, read_write> out_b: array<vec4<R>>;
@group(0) @binding(9) var<storage, read_write> out_c: array<vec4<R>>;

fn store_third(at: u32, value: vec4<f32>) { out_c[at / 4u] = vec4<R>(value); }

fn store_quad(slice: u32, m: u32, n: u32, totals: vec4<f32>) {
  if (n >= params.columns) { return; }
  let value = vec4(
    result(m, n, totals.x),
    result(m, n + 1u, totals.y),
    result(m, n + 2u, totals.z),
    result(m, n + 3u, totals.w),
  );
  if (n < WIDTH_A) {
    out[(m * WIDTH_A + n) / 4u] = vec4<R>(value);
  } else if (n < WIDTH_A + WIDTH_B) {
    out_b[(m * WIDTH_B + n - WIDTH_A) / 4u] = vec4<R>(value);
  } else {
    store_third(m * WIDTH_C + n - WIDTH_A - WIDTH_B, value);
  }
}
