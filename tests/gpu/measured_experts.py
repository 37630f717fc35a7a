"""Measured cases of mixtures of experts."""

from __future__ import annotations

from typing import Any

from arguments import tensor, weight
from expert_cases import mlp, mlp_arguments
from measured_case import Case, case
from quantized_cases import EXPERTS_Q8, bytes_of, groups_of, packed, scales, scales_of

LIVE = {"M": (7, 1, 5)}
CHOSEN = tensor("M", 3, dtype="i32", low=0, high=4)
ROUTED = (8, "sigmoid", weight(61 * 4), 4, 2, 2, True, 1.0)


def q4(kernels: str, kind: str, depth: int = 36, *, by_pair: bool = False) -> Case:
    x: Any = tensor("M", *([3] if by_pair else []), depth)
    weights = (weight(values=packed(5 * 67, depth), dtype="u8"), scales(depth, 32, 5 * 67), 32, 5)
    return case("pteron.experts_q4gsw.default", x, CHOSEN, *weights, kernels=kernels, on=(kind,), live=LIVE)


EXPERT_CASES: list[Case] = [
    case("pteron.route.default", tensor("M", 61 * 4), *ROUTED, kernels="route", live=LIVE),
    case("pteron.combine.default", tensor("M", 3, 67), tensor("M", 3), kernels="combine", live=LIVE),
    *[
        case(
            "pteron.experts_linear.default",
            *(tensor("M", 13), CHOSEN, weight(5 * 17, 13), 5),
            kernels=kernel,
            on=(kind,),
            live=LIVE,
        )
        for kernel, kind in (("matmul_thread", "software"), ("matvec", "hardware"))
    ],
    *[
        case(
            "pteron.experts_int8.default",
            *(tensor("M", 101), CHOSEN, bytes_of(5 * 67, 101), scales_of(5 * 67), 5),
            kernels=f"q4_pad {kernel}",
            on=(kind,),
            live=LIVE,
        )
        for kernel, kind in (("q4_thread", "software"), ("q4_matvec", "hardware"))
    ],
    *[
        case(
            *(EXPERTS_Q8, tensor("M", 3, 72), CHOSEN, *groups_of(5 * 67, 72, 16, minima=True), 5),
            kernels=kernel,
            on=(kind,),
            live=LIVE,
        )
        for kernel, kind in (("q4_thread", "software"), ("q4_matvec", "hardware"))
    ],
    q4("q4_thread", "software"),
    q4("q4_thread", "software", 128, by_pair=True),
    q4("q4_matvec", "hardware"),
    case(
        "pteron.experts_q4gsw.default",
        *(tensor("M", 36), tensor("M", 2, dtype="i32", low=0, high=1)),
        *(weight(values=packed(2 * 20, 36), dtype="u8"), scales(36, 32, 2 * 20), 32, 2),
        kernels="group_rows q4_tiled",
        on=("hardware",),
        live={"M": (67, 17)},
    ),
    case(
        "pteron.experts_mlp_q4",
        *mlp_arguments(64, 32, 5, 3, is_full=True),
        kernels="router route q4_digits q4_digits",
        on=("subgroups",),
        live=LIVE,
        oracle=mlp,
    ),
    q4("q4_digits", "subgroups", 64),
    q4("q4_digits", "subgroups", 1024, by_pair=True),
]
