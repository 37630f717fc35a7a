// Rows that several invocations share: by workgroup memory, or by subgroups of one width.
@if(BY_SUBGROUPS) import super::rows_subgroup::{WORKGROUP, row_index, row_sum, row_max, row_product};
@else import super::rows_lanes::{WORKGROUP, row_index, row_sum, row_max, row_product};

override BY_SUBGROUPS: bool = false;
