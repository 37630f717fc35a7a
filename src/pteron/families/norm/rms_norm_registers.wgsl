//! use row_normed
//! use rows_from_memory
// normed[k] = x[k] · gain[k] / sqrt(mean(x²) + eps) over each row, as rms_norm.wgsl, for rows of whole vec4s. The
// row stays in the registers of its invocations (lib/rows_from_memory.wgsl, lib/row_normed.wgsl).
