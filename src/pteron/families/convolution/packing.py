"""The weights of convolutions as kernels read them."""

from __future__ import annotations

import numpy as np

from pteron.ops.operand import HostArray, packing


def by_group(weight: HostArray, groups: int, transposed: bool) -> HostArray:
    """[group][filter][channel][tap] of weights [filter][channel], transposed ones [channel][filter]."""
    taps = int(np.prod(weight.shape[2:]))
    grouped = weight.reshape(groups, weight.shape[0] // groups, weight.shape[1], taps)
    return grouped.swapaxes(1, 2) if transposed else grouped


@packing("convolution quads")
def in_quads(weight: HostArray, groups: int, transposed: int, quads: int, storage: str) -> HostArray:
    """[group][tap][channel][filter], padded with zeros: channels to so many quads, filters to whole ones."""
    grouped = by_group(weight, groups, bool(transposed)).transpose(0, 3, 2, 1)
    padding = [(0, 0), (0, 0), (0, 4 * quads - grouped.shape[2]), (0, -grouped.shape[3] % 4)]
    return np.pad(grouped, padding).astype(storage)


@packing("convolution rows")
def in_rows(weight: HostArray, groups: int, transposed: int, quads: int, storage: str) -> HostArray:
    """[group][filter][tap][channel], as they are."""
    grouped = by_group(weight, groups, bool(transposed)).transpose(0, 1, 3, 2)
    return np.ascontiguousarray(grouped).astype(storage)
