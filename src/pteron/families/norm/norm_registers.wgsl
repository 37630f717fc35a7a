// A norm over rows, as norm.wgsl, for rows of whole vec4s with an element per channel. The row stays in the registers of its
// invocations; lib/row_normed.wgsl computes and stores.
import package::wgsl::lib::row_normed::{finish_row};
import package::wgsl::lib::rows_from_memory::{main};
