"""Measured cases of recurrent layers."""

from __future__ import annotations

from arguments import weight
from measured_case import Case, case
from recurrent_cases import (
    CONV,
    DELTA,
    LIVE,
    PLACES,
    SCAN,
    SLOTS,
    OneSequence,
    Rows,
    conv,
    conv_state,
    delta,
    places,
    scan,
    scan_state,
    start,
)


class ConvRows(Rows):
    def __init__(self) -> None:
        super().__init__(CONV, 1)


class DeltaRows(Rows):
    def __init__(self) -> None:
        super().__init__(DELTA, 5)


class ScanRows(Rows):
    def __init__(self) -> None:
        super().__init__(SCAN, 2)


RECURRENT_CASES: list[Case] = [
    case(
        f"{CONV}.default",
        *(*conv("S", 67, 4, bias=True), conv_state(1, 67, 4), start()),
        kernels="short_conv short_conv_state",
        oracle=OneSequence(CONV),
        live=LIVE,
    ),
    case(
        f"{CONV}_rows",
        *(*conv(len(PLACES), 67, 4, silu=True), conv_state(SLOTS, 67, 4), places()),
        kernels="short_conv",
        oracle=ConvRows,
    ),
    case(
        f"{DELTA}.default",
        *(*delta("S", 6, 2, 13, 17), weight(1, 6, 13, 17), start()),
        kernels="gated_delta_rule",
        oracle=OneSequence(DELTA),
        live=LIVE,
    ),
    case(
        f"{DELTA}_rows",
        *(*delta(len(PLACES), 6, 2, 13, 17), weight(SLOTS, 6, 13, 17), places()),
        kernels="gated_delta_rule",
        oracle=DeltaRows,
    ),
    case(
        f"{SCAN}.default",
        *(*scan("S", 6, 13, 67, 2), scan_state(1, 6, 13, 67), start()),
        kernels="ssm_scan",
        oracle=OneSequence(SCAN),
        live=LIVE,
    ),
    case(
        f"{SCAN}_rows",
        *(*scan(len(PLACES), 6, 13, 67, 2), scan_state(SLOTS, 6, 13, 67), places()),
        kernels="ssm_scan",
        oracle=ScanRows,
    ),
]
