"""Operators that VulkanPartitioner accepts but removes before it writes a file, and the reason for each.

Comparisons and copies still work if a graph calls them. A graph that calls one of the others is an error with
the reason from the table."""

from __future__ import annotations

from collections.abc import Mapping

_COMPARISON = "a comparison only feeds assertions, which exporters drop"
_ASSERTION = "exporters drop assertions, since no kernel can stop a program"

REMOVED_BY_EXPORTER: Mapping[str, str] = {
    "getitem": "exporters name a member of a list by its own id",
    **dict.fromkeys(("lt", "gt", "ge", "le", "eq"), _COMPARISON),
    "_assert_scalar.default": _ASSERTION,
    "sym_constrain_range_for_size.default": _ASSERTION,
    "aten.copy.default": "exporters replace a copy by its source",
}


def explained(name: str) -> str:
    """An operator's name, with the reason if no file should contain it."""
    reason = REMOVED_BY_EXPORTER.get(name)
    return f"{name} (no file should contain it: {reason})" if reason else name
