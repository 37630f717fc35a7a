"""How many invocations share a row: one on a software adapter, up to a workgroup on a GPU. Rows that are too
long for them are split into parts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pteron.ops.live import AnyInt, LiveInt, most
from pteron.ops.target import Target

WORKGROUP = 64
# Rows of a workgroup where each row has one invocation: one or two vectors, so that every core gets work.
SOFTWARE_ROWS = 8
SUBGROUP = 32  # the default width of lib/rows.wgsl
# Elements of a row that one invocation walks: three levels of blocks of 16 (lib/sums.wgsl), and few enough to
# walk several times before an adapter ends its loops (Target.loop_max).
WALK_MAX = 4096
# Rows in registers (lib/row_registers.wgsl): invocations per row (every device has that many), the maximum of
# vec4s per invocation, and the total of invocations that keep an H200 busy.
REGISTER_LANES = 256
REGISTER_QUADS_MAX = 32
BUSY = 1 << 17


def row_layout(target: Target, rows: AnyInt, length: AnyInt) -> dict[str, Any]:
    """The declarations of a row kernel (lib/rows.wgsl), for `Kernel(...)`."""
    if target.is_cpu:
        return shared_rows(target, 1, SOFTWARE_ROWS)
    lanes = SUBGROUP if target.subgroup_size == SUBGROUP else 1
    if isinstance(length, LiveInt):  # by the largest sizes, so that few plans suit all
        rows, length = most(rows), most(length)
    while lanes < 256 and lanes < length:
        lanes *= 2
    if rows >= 4096 and lanes > SUBGROUP:  # enough rows to fill the device: fewer barriers win
        lanes = SUBGROUP
    return shared_rows(target, lanes, max(1, WORKGROUP // lanes))


def shared_rows(target: Target, lanes: int, rows: int) -> dict[str, Any]:
    """Declarations for `rows` rows of `lanes` invocations per workgroup, by subgroups where they fit."""
    layout: dict[str, Any] = {"LANES": lanes, "ROWS": rows}
    if target.subgroup_size == SUBGROUP and lanes % SUBGROUP == 0:
        layout["BY_SUBGROUPS"] = True
    return layout


def fits_registers(target: Target, length: AnyInt) -> bool:
    """Whether the invocations that share a row of `length` elements can hold it, in pairs of vec4s."""
    return not target.is_cpu and length % 8 == 0 < length <= 4 * REGISTER_QUADS_MAX * REGISTER_LANES


def register_rows(
    target: Target, rows: AnyInt, length: AnyInt, neighbours: int, *, in_one_order: bool = False
) -> dict[str, Any]:
    """Declarations for rows in registers: a workgroup per row, `neighbours` vec4s side by side. Few rows get
    more lanes each, unless the order of additions must not depend on the number of rows."""
    units = length // (4 * neighbours)
    wanted = max(SUBGROUP, 1 << (units - 1).bit_length())
    lanes = REGISTER_LANES
    while not in_one_order and 2 * lanes * rows <= BUSY and 2 * lanes <= target.invocations_max:
        lanes *= 2
    return {"QUADS": length // 4, "NEIGHBOURS": neighbours, **shared_rows(target, min(wanted, lanes), 1)}


def row_groups(target: Target, layout: Mapping[str, Any], rows: AnyInt) -> tuple[AnyInt, int, int]:
    return folded(target, -(-rows // layout["ROWS"]))


def folded(target: Target, count: AnyInt) -> tuple[AnyInt, int, int]:
    """A grid of at least `count` workgroups, on two axes if one axis is too short."""
    if count <= target.workgroups_max:
        return count, 1, 1
    folds = int(-(-count // target.workgroups_max))
    return -(-count // folds), folds, 1


def row_parts(layout: Mapping[str, Any], length: AnyInt) -> tuple[int, AnyInt]:
    """(parts, span) of a row whose parts are walked by a row kernel's lanes."""
    return split(length, WALK_MAX * int(layout["LANES"]))


def split(length: AnyInt, span_max: AnyInt) -> tuple[int, AnyInt]:
    """(parts, span): `length` in near-equal spans of at most `span_max`. Only the last may be shorter; none
    is empty, unless there is nothing to split. A plan has one number of parts, which sizes scratch memory."""
    parts = int(max(1, -(-length // span_max)))
    span = max(1, -(-length // parts))
    return int(max(1, -(-length // span))), span
