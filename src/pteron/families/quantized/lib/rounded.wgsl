// A product as a float holds it. What stands here between a product and a sum changes no number, but keeps
// compilers from making one operation of both: that would be rounded once, where PyTorch rounds twice.
fn rounded(product: f32) -> f32 { return clamp(product, -3.4028234e38, 3.4028234e38); }
