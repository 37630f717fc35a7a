// A product rounded to f32. The clamp changes no number, but keeps compilers from
// fusing a product and a sum into one operation, which rounds once where PyTorch rounds twice.
fn rounded(product: f32) -> f32 { return clamp(product, -3.4028234e38, 3.4028234e38); }
