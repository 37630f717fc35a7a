"""Measured cases of operators on planes: convolutions, pools, resampling, batch norm."""

from __future__ import annotations

from typing import Any

from arguments import tensor, weight
from measured_case import EITHER, Case, case
from plane_cases import (
    AVERAGE,
    BATCH,
    BILINEAR,
    CONVOLUTION,
    INDICES,
    LARGEST,
    NEAREST,
    PRIORS,
    SAMPLER,
    SHUFFLE,
    numbers,
)
from torch.nn.functional import conv2d

from pteron.reference.elementwise import nearest


def convolution(
    channels: int,
    filters: int,
    kernels: str,
    on: tuple[str, ...] = EITHER,
    groups: int = 1,
    size: int = 7,
    **options: Any,
) -> Case:
    weights = weight(filters, channels // groups, 3, 3, low=-0.5, high=0.5), weight(filters)
    arguments = tensor("S", channels, size, size, low=-1, high=1), *weights
    rest = numbers(stride=2, padding=1, groups=groups)
    return case(CONVOLUTION, *arguments, *rest, kernels=kernels, on=on, **options)


PLANE_CASES = [
    convolution(5, 13, "convolution_direct", ("software",)),
    convolution(5, 67, "convolution_tiled", ("hardware",)),
    convolution(10, 10, "convolution_direct", ("hardware",), groups=2),
    convolution(6, 12, "convolution_depthwise", ("hardware",), groups=6),
    convolution(2, 4, "convolution_depthwise", ("software",), size=131, groups=2),
    convolution(8, 13, "convolution_uniform", ("software",), size=8),
    convolution(3200, 5, "convolution_uniform convolution_merge", ("software",), size=4),
    convolution(8, 16, "convolution_depthwise_uniform", ("software",), size=8, groups=8),
    convolution(67, 5, "convolution_lanes", ("hardware",), size=1),
    convolution(1031, 9, "convolution_direct convolution_merge", ("software",), size=5),
    convolution(257, 67, "convolution_tiled convolution_merge", ("hardware",), size=5),
    convolution(5, 67, "convolution_matrix", ("matrices",), tolerance=0.02),
    case(
        "pteron.convolution",
        *(tensor("S", 67, 5, 5), weight(61, 67, 1, 1), None, *numbers(), (), tensor("S", 67, 1, 1)),
        *(None, None, None, "none"),
        kernels="convolution_tiled",
        on=("hardware",),
        oracle=lambda x, weights, *rest: conv2d(x * rest[8], weights),
    ),
    case(
        CONVOLUTION,
        *(tensor("S", 5, 7, 7), tensor(13, 5, 3, 3), None, *numbers(extra=None)),
        kernels="convolution_pack",
    ),
    case(
        CONVOLUTION,
        *(tensor("S", 5, 7, 7), weight(5, 13, 3, 3), None, *numbers(extra=1, stride=2)),
        kernels="",
    ),
    case(
        BATCH,
        *(tensor("S", 5, 7), weight(5), weight(5), weight(5), weight(5, low=0.5, high=2), 0.1, 1e-5),
        kernels="batch_norm",
    ),
    case(
        AVERAGE,
        *(tensor(2, 3, "S", 13), [3, 5], [2, 1], [1, 2], True, False, None),
        kernels="average_pool",
    ),
    case(
        AVERAGE,
        *(tensor("S", 1, 31, 37), [17, 19], [3, 2], [8, 9], True, True, None),
        kernels="average_pool",
    ),
    case(AVERAGE, tensor("S", 3, 13, 7), [13, 7], [], [0], False, True, 5, kernels="reduce"),
    case(
        LARGEST,
        *(tensor(3, "S", 13), [2, 3], [1, 2], [1, 1], [1, 2], True),
        kernels="largest_pool",
    ),
    case(
        INDICES,
        *(tensor("S", 1, 31, 37), [13, 11], [3, 2], [6, 5], [2, 3], True),
        kernels="largest_pool",
    ),
    case(
        NEAREST,
        *(tensor(1, 2, "S", 13), None, [1.7, 2.3]),
        kernels="upsample",
        oracle=nearest,
    ),
    case(
        BILINEAR,
        *(tensor(1, 2, "S", 13), [11, 17], False, None),
        kernels="upsample",
    ),
    case(SHUFFLE, tensor(2, 12, "S", 5), 2, kernels="copy"),
    *(
        case(
            SAMPLER,
            *(tensor(2, 3, "S", 5), tensor(2, 7, "S", 2, low=-3), mode, padding, False),
            kernels="grid_sampler_2d",
        )
        for mode in range(3)
        for padding in range(3)
    ),
    case(PRIORS, tensor(1, 3, "S", 5), 8, 0.5, kernels="grid_priors"),
]
