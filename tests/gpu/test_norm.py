"""Norms over rows of every length, by lanes alone and together, and batch norm."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from arguments import Argument, Symbol, tensor, weight
from check import NOTHING, check_op, each, each_float, floats, refuse_op
from plane_cases import BATCH, GROUP, LAYER, RMS

from pteron.ops import Target

pytestmark = pytest.mark.kernels


@each("shape", [("S", 5), ("S", "T", 13), (2, "S", "T", 7), (5,), (0, 5)])
def test_rms_norm(shape: tuple[int | str, ...], target: Target) -> None:
    arguments = (tensor(*shape), weight(int(shape[-1])), 1e-5)
    check_op(RMS, *arguments, target=target)


@each_float
def test_rms_norm_in_float_types(dtype: str, target: Target) -> None:
    check_op(RMS, tensor("S", 7), weight(7), 1e-6, dtype=dtype, target=target)


@each("length", [1, 64, 65, 256, 257, 264, 1009, 2048, 2056, 32768, 32776])
def test_rms_norm_of_long_rows(length: int, target: Target) -> None:
    arguments = (tensor("S", length), weight(length), 1e-5)
    check_op(RMS, *arguments, live={"S": (3, 1)}, target=target)


@floats
def test_rms_norm_by_eights(dtype: str, own_subgroups: Target) -> None:
    for length in (264, 2056):
        arguments = (tensor("S", length), weight(length), 1e-5)
        check_op(RMS, *arguments, live={"S": (5, 1)}, dtype=dtype, target=own_subgroups)


@each("eps", [0.0, 1.0, 5.0, 1e30])
def test_rms_norm_of_any_eps(eps: float, target: Target) -> None:
    check_op(RMS, tensor("S", 256), weight(256), eps, live={"S": (3, 1)}, target=target)


def test_rms_norm_of_many_rows(target: Target) -> None:
    check_op(RMS, tensor(4099, 67), weight(67), 1e-5, target=target)
    few = replace(target, workgroups_max=11)
    check_op(RMS, tensor(101, 256), weight(256), 1e-5, target=few)


def test_no_rows(target: Target) -> None:
    check_op(RMS, tensor("S", 5), weight(5), 1e-5, live=NOTHING, target=target)
    check_op(LAYER, tensor("S", 5), [5], weight(5), None, 1e-5, live=NOTHING, target=target)


@each("length", [5, 256, 4099, 32776])
def test_norms_of_zeros_and_tiny_numbers(length: int, target: Target) -> None:
    """Of tiny numbers epsilon is the greater part of the root, whatever the kernel for the length."""
    for row in ([0.0] * length, [3e-4, -3e-4, 3e-4] * (length // 3)):
        check_op(RMS, tensor(values=[row]), weight(len(row)), 1e-5, target=target)
        check_op(LAYER, tensor(values=[row]), [len(row)], None, None, 1e-5, target=target)


@each(("scale", "shift"), [(True, True), (True, False), (False, True), (False, False)])
def test_layer_norm(scale: bool, shift: bool, target: Target) -> None:
    parameters: list[Argument] = [weight(13) if given else None for given in (scale, shift)]
    check_op(LAYER, tensor("S", "T", 13), [13], *parameters, 1e-5, target=target)


def test_layer_norm_over_two_dims(target: Target) -> None:
    check_op(LAYER, tensor("S", 3, 5), [3, 5], weight(3, 5), weight(3, 5), 1e-5, target=target)


@each_float
def test_layer_norm_in_float_types(dtype: str, target: Target) -> None:
    check_op(LAYER, tensor("S", 7), [7], weight(7), weight(7), 1e-5, dtype=dtype, target=target)


@floats
def test_layer_norm_by_eights(dtype: str, own_subgroups: Target) -> None:
    for length, parameters in ((264, 2), (768, 1), (2056, 0)):
        given: list[Argument] = [weight(length) if i < parameters else None for i in range(2)]
        arguments = (tensor("S", length, low=2, high=6), [length], *given, 1e-5)
        tolerance = 5e-5 if dtype == "f32" else None
        check_op(
            LAYER, *arguments, live={"S": (5, 1)}, dtype=dtype, target=own_subgroups, tolerance=tolerance
        )


@each("eps", [0.0, 1.0, 5.0])
def test_layer_norm_of_any_eps(eps: float, target: Target) -> None:
    arguments = (tensor("S", 256), [256], weight(256), weight(256), eps)
    check_op(LAYER, *arguments, live={"S": (7, 1)}, target=target)


@each("length", [1, 64, 65, 257, 264, 1009, 2056])
def test_layer_norm_of_long_rows(length: int, target: Target) -> None:
    check_op(
        LAYER, tensor(3, length, low=2, high=6), [length], None, None, 1e-3, target=target, tolerance=5e-5
    )


def test_layer_norm_of_empty_rows(target: Target) -> None:
    for live in (("S", 0), (3, "T", 0)):
        check_op(LAYER, tensor(*live), [0], weight(0), weight(0), 1e-5, target=target)
    check_op(LAYER, tensor("S", 3, 0), [3, 0], None, None, 1e-5, target=target)


parameters = pytest.mark.parametrize(
    ("scale", "shift"), [(True, True), (True, False), (False, True), (False, False)]
)


@pytest.mark.long(every=2)
@parameters
@pytest.mark.parametrize("groups", [1, 2, 6])
def test_group_norm(groups: int, scale: bool, shift: bool, target: Target) -> None:
    given: list[Argument] = [weight(6) if there else None for there in (scale, shift)]
    check_op(GROUP, tensor(2, 6, 5, 7), *given, 2, 6, 35, groups, 1e-5, target=target)


@each_float
def test_group_norm_of_live_batches(dtype: str, target: Target) -> None:
    arguments = (tensor("N", 6, 5, 7), weight(6), weight(6), Symbol("N"), 6, 35, 3, 1e-5)
    check_op(GROUP, *arguments, live={"N": (3, 0, 1, 2)}, dtype=dtype, target=target)


def test_group_norm_of_live_planes(target: Target) -> None:
    arguments = (tensor(2, 6, "P"), weight(6), weight(6), 2, 6, Symbol("P"), 3, 1e-5)
    check_op(GROUP, *arguments, live={"P": (35, 1, 7, 0, 131)}, target=target)


@each("shape", [(3, 6), (3, 6, 1), (1, 6, 31, 37), (2, 6, 3, 5, 7), (2, 6, 0, 5)])
def test_group_norm_of_every_rank(shape: tuple[int, ...], target: Target) -> None:
    plane = math.prod(shape[2:])
    given = (weight(6), weight(6), shape[0], 6, plane, 2, 1e-5)
    check_op(GROUP, tensor(*shape), *given, target=target, tolerance=1e-4)


@parameters
def test_batch_norm(scale: bool, shift: bool, target: Target) -> None:
    given: list[Argument] = [weight(5) if there else None for there in (scale, shift)]
    statistics = (weight(5), weight(5, low=0.1, high=4))
    arguments = (tensor("N", 5, "S", 7), *given, *statistics, 0.1, 1e-5)
    check_op(BATCH, *arguments, live={"N": (3, 1, 2, 0), "S": (5, 11, 1, 0)}, target=target)


@each("planes", [(), ("S",), (3, "S"), (2, "S", 3), (2, 1, "S", 3)])
@each_float
def test_batch_norm_of_every_rank(planes: tuple[int | str, ...], dtype: str) -> None:
    statistics = (weight(3, dtype="f32"), weight(3, low=0.1, high=4, dtype="f32"))
    arguments = (tensor("T", 3, *planes), weight(3), weight(3), *statistics, 0.1, 1e-3)
    check_op(BATCH, *arguments, dtype=dtype)


def test_refusals() -> None:
    x = tensor(3, 5)
    one = ((3, 5),)
    three = ((3, 5), (3, 1), (3, 1))
    refuse_op(RMS, x, weight(4), 1e-5, out=one, match=r"last dim; got .*\[3, 5\], .*\[4\]")
    refuse_op(
        LAYER, x, [4], None, None, 1e-5, out=three, match=r"\[4\] must be x's last dims; got .*\[3, 5\]"
    )
    refuse_op(LAYER, x, [5], weight(3), None, 1e-5, out=three, match=r"fit the row; got .*\[3, 5\], .*\[3\]")
    for parameters in ((weight(4), None), (None, weight(5, 1))):
        arguments = (tensor(3, 5, 2), *parameters, 3, 5, 2, 5, 1e-5)
        refuse_op(GROUP, *arguments, out=((3, 5, 2), (3, 5), (3, 5)), match="a number per channel; got")
    plain = (x, None, None)
    refuse_op(GROUP, *plain, 3, 4, 1, 1, 1e-5, out=three, match=r"are \[3, 4, 1\], the input has \[3, 5, 1\]")
    refuse_op(GROUP, *plain, 3, 5, 1, 2, 1e-5, out=three, match="5 channels must be a multiple of 2 groups")
    refuse_op(GROUP, *plain, 3, 5, 1, 0, 1e-5, out=three, match="must be a multiple of 0 groups")
    refuse_op(GROUP, tensor(3), None, None, 3, 1, 1, 1, 1e-5, out=three, match="two dims or more")
    empty = ((3, 5), (0,), (0,))
    refuse_op(BATCH, *plain, weight(4), weight(5), 0.1, 1e-5, out=empty, match=r"per channel; got .*\[4\]")
    refuse_op(BATCH, tensor(5), None, None, weight(5), weight(5), 0.1, 1e-5, out=empty, match="two dims or")
