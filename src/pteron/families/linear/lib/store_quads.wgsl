//! extent out: (parts * batch * rows - 1) * pitch + first + columns
// As store_one.wgsl, for numbers of columns, a pitch and a first column that are multiples of four.
alias R = f32;

@group(0) @binding(3) var<storage, read_write> out: array<vec4<R>>;

fn store_quad(slice: u32, m: u32, n: u32, totals: vec4<f32>) {
  if (n >= params.columns) { return; }
  let results = vec4(
    result(m, n, totals.x),
    result(m, n + 1u, totals.y),
    result(m, n + 2u, totals.z),
    result(m, n + 3u, totals.w),
  );
  out[((slice * params.rows + m) * params.pitch + params.first + n) / 4u] = vec4<R>(results);
}
