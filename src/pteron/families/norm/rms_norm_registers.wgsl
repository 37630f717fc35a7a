//! use row_normed
//! use rows_from_memory
// normed[k] = x[k] · gain[k] / sqrt(mean(x²) + eps) over each row, as rms_norm.wgsl, of whole vec4s, which its
// invocations hold meanwhile (lib/rows_from_memory.wgsl, lib/row_normed.wgsl).
