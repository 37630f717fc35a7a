// Rows of x as int8, normed where there is a gain: lib/row_int8.wgsl. LANES invocations share a row and hold it
// (lib/rows_from_memory.wgsl).
import package::wgsl::lib::rows_from_memory::{main};
import super::lib::row_int8::{finish_row};
