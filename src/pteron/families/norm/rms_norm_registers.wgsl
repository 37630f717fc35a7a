// normed[k] = x[k] · gain[k] / sqrt(mean(x²) + eps) over each row, as rms_norm.wgsl, for rows of whole vec4s. The
// row stays in the registers of its invocations.
import package::wgsl::lib::row_normed::{finish_row};
import package::wgsl::lib::rows_from_memory::{main};
