"""Live cases of operators on planes: convolutions, pools, resampling, batch norm."""

from __future__ import annotations

from arguments import tensor, weight
from live_case import Case, case
from plane_cases import (
    AVERAGE,
    BATCH,
    CLAMPED,
    CONVOLUTION,
    INDICES,
    LARGEST,
    SAMPLER,
    SHUFFLE,
    numbers,
    small,
)

PLANES = tensor("N", 3, "S", "T")
WINDOW = ([3, 3], [2, 1], [1, 1])  # size, stride, padding

PLANE_CASES: dict[str, Case] = {
    CONVOLUTION: case(
        *(PLANES, small(5, 3, 3, 3), small(5), *numbers(stride=(2, 1), padding=1)), tolerance=1e-2
    ),
    CLAMPED: case(
        *(PLANES, small(3, 1, 3, 5), small(3), *numbers(padding=(1, 0), groups=3), -1.5, 6.0),
        tolerance=1e-2,
    ),
    AVERAGE: case(PLANES, *WINDOW, True, False, None),
    LARGEST: case(PLANES, *WINDOW, [1, 2], False),
    INDICES: case(PLANES, *WINDOW, [1, 2], True),
    SHUFFLE: case(tensor("N", 12, "S", "T"), 2),
    SAMPLER: case(
        *(tensor("N", 3, "S", 7), tensor("N", "T", 5, 2, low=-1.25, high=1.25), 0, 1, False), tolerance=1e-2
    ),
    BATCH: case(
        *(PLANES, weight(3), weight(3), weight(3), weight(3, low=0.1, high=4), 0.1, 1e-5), tolerance=1e-2
    ),
}
