"""RMS norm and layer norm, over rows of every length, by lanes alone and together."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from arguments import Argument, tensor, weight
from check import NOTHING, check_op, floats, refuse_op

from pteron.ops import Target

RMS = "et_vk.rms_norm.default"
LAYER = "aten.native_layer_norm.default"


def _rms_norm(x: Any, scale: Any, eps: float) -> Any:
    return x / torch.sqrt((x * x).mean(-1, keepdim=True) + eps) * scale


@pytest.mark.parametrize("shape", [("S", 5), ("S", "T", 13), (2, "S", "T", 7), (5,), (0, 5)])
def test_rms_norm(shape: tuple[int | str, ...], target: Target) -> None:
    arguments = (tensor(*shape), weight(int(shape[-1])), 1e-5)
    check_op(RMS, *arguments, oracle=_rms_norm, target=target)


@floats
def test_rms_norm_in_float_types(dtype: str, target: Target) -> None:
    check_op(RMS, tensor("S", 7), weight(7), 1e-6, oracle=_rms_norm, dtype=dtype, target=target)


@pytest.mark.parametrize("length", [1, 64, 65, 257, 1009])
def test_rms_norm_of_long_rows(length: int, target: Target) -> None:
    arguments = (tensor("S", length), weight(length), 1e-5)
    check_op(RMS, *arguments, oracle=_rms_norm, live={"S": (3, 1)}, target=target)


def test_rms_norm_of_many_rows(target: Target) -> None:
    check_op(RMS, tensor(4099, 67), weight(67), 1e-5, oracle=_rms_norm, target=target)


def test_no_rows(target: Target) -> None:
    check_op(RMS, tensor("S", 5), weight(5), 1e-5, oracle=_rms_norm, live=NOTHING, target=target)
    check_op(LAYER, tensor("S", 5), [5], weight(5), None, 1e-5, live=NOTHING, target=target)


def test_rms_norm_of_zeros(target: Target) -> None:
    check_op(RMS, tensor(values=[[0.0] * 5]), weight(5), 1e-5, oracle=_rms_norm, target=target)


@pytest.mark.parametrize(("scale", "shift"), [(True, True), (True, False), (False, True), (False, False)])
def test_layer_norm(scale: bool, shift: bool, target: Target) -> None:
    parameters: list[Argument] = [weight(13) if given else None for given in (scale, shift)]
    check_op(LAYER, tensor("S", "T", 13), [13], *parameters, 1e-5, target=target)


def test_layer_norm_over_two_dims(target: Target) -> None:
    check_op(LAYER, tensor("S", 3, 5), [3, 5], weight(3, 5), weight(3, 5), 1e-5, target=target)


@floats
def test_layer_norm_in_float_types(dtype: str, target: Target) -> None:
    check_op(LAYER, tensor("S", 7), [7], weight(7), weight(7), 1e-5, dtype=dtype, target=target)


@pytest.mark.parametrize("length", [1, 64, 65, 257, 1009])
def test_layer_norm_of_long_rows(length: int, target: Target) -> None:
    check_op(
        LAYER, tensor(3, length, low=2, high=6), [length], None, None, 1e-3, target=target, tolerance=5e-5
    )


def test_refusals() -> None:
    x = tensor(3, 5)
    one = ((3, 5),)
    three = ((3, 5), (3, 1), (3, 1))
    refuse_op(RMS, x, weight(4), 1e-5, out=one, match=r"last dim; got .*\[3, 5\], .*\[4\]")
    refuse_op(
        LAYER, x, [4], None, None, 1e-5, out=three, match=r"\[4\] must be x's last dims; got .*\[3, 5\]"
    )
    refuse_op(LAYER, x, [5], weight(3), None, 1e-5, out=three, match=r"fit the row; got .*\[3, 5\], .*\[3\]")
