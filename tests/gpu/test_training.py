"""Training: a loss with its gradient, gradients of linear layers, an optimiser's step, 4-bit weights anew."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from arguments import Leaf, tensor, weight
from check import check_op, each, each_float, refuse_op
from one_operator import OneOperator
from quantized_cases import packed
from training_cases import INPUT_GRADIENT, LOSS, RATES, REQUANTIZE, STEP, WEIGHT_GRADIENT

from pteron.dtypes import DType
from pteron.errors import InputError
from pteron.ops import Target
from pteron.reference.products import adamw_step

INF = float("inf")


# Cross entropy ----------------------------------------------------------------------------------


@each_float
@each("classes", [1, 2, 13, 131])
def test_loss(classes: int, dtype: str, target: Target) -> None:
    arguments = tensor("S", classes), tensor("S", dtype="i64", low=-2, high=classes - 1), 3.0
    check_op(LOSS, *arguments, dtype=dtype, target=target)


@each("labels", ["i32", "i64"])
def test_the_loss_of_long_rows(labels: str, target: Target) -> None:
    """More classes than one invocation walks."""
    arguments = tensor(3, 20_011), tensor(values=(20_010, -1, 0), dtype=labels), 2.0
    check_op(LOSS, *arguments, target=target)


def test_the_loss_of_many_rows(target: Target) -> None:
    check_op(LOSS, tensor(5003, 3), tensor(5003, dtype="i64", low=-1, high=2), 1000.0)


def test_the_loss_of_no_rows(target: Target) -> None:
    arguments = tensor("S", 5), tensor("S", dtype="i64", low=-1, high=4), 2.0
    check_op(LOSS, *arguments, live={"S": (3, 0, 1)}, target=target)


def test_a_loss_that_ignores_every_row(target: Target) -> None:
    arguments = tensor(values=((1.0, INF), (np.nan, -INF))), tensor(values=(-1, -100), dtype="i64"), 1.0
    check_op(LOSS, *arguments, target=target)


def test_the_loss_of_extreme_logits(target: Target) -> None:
    logits = ((1e4, -1e4, 0), (-INF, 2, 1), (3e38, 3e38, -3e38), (-1e30, -1e30, -1e30), (0, 88, 89))
    arguments = tensor(values=logits), tensor(values=(1, 1, 0, 2, 0), dtype="i64"), 5.0
    check_op(LOSS, *arguments, target=target)


def test_a_label_beyond_the_last_class() -> None:
    """The host refuses it where it can; a kernel can only make it show."""
    labels = np.array([3, 0])
    arguments = tensor(2, 3), tensor(values=labels, dtype="i64"), 1.0
    with pytest.raises(InputError, match=rf"index 3 of {LOSS} is outside -2147483648 to 2"):
        check_op(LOSS, *arguments, oracle=lambda x, *_: (x.sum(), x))
    refuse_op(
        LOSS,
        *(tensor(2, 3), weight(values=labels, dtype="i64"), 1.0),
        match="index 3 is outside",
        out=[(), (2, 3)],
    )


def test_the_loss_refuses() -> None:
    shapes = [(), (2, 3)]
    labels = tensor(2, dtype="i64")
    refuse_op(LOSS, tensor(2, 3, 1), labels, 1.0, match="rows, classes", out=shapes)
    refuse_op(LOSS, tensor(2, 3), tensor(3, dtype="i64"), 1.0, match="one label per row", out=shapes)
    refuse_op(LOSS, tensor(2, 3), tensor(2), 1.0, match="labels must be integers", out=shapes)
    refuse_op(LOSS, tensor(2, 0), labels, 1.0, match="at least one class", out=[(), (2, 0)])


# Gradients --------------------------------------------------------------------------------------


@each_float
@each(("rows", "columns"), [(1, 1), (13, 7), (67, 131)], every=3)
def test_weight_gradient(rows: int, columns: int, dtype: str, target: Target) -> None:
    d_out, x = tensor("S", rows, low=-1, high=1), tensor("S", columns, low=-1, high=1)
    check_op(WEIGHT_GRADIENT, d_out, x, dtype=dtype, target=target)


def test_weight_gradient_of_any_rank(target: Target) -> None:
    check_op(WEIGHT_GRADIENT, tensor(2, "S", 3, 5), tensor("S", 6, 7), target=target)
    check_op(WEIGHT_GRADIENT, tensor(3, 5), tensor(1, 3, 7), target=target)
    one = lambda d_out, x: torch.outer(d_out, x)  # noqa: E731
    check_op(WEIGHT_GRADIENT, tensor(5), tensor(7), oracle=one, target=target)


def test_weight_gradient_over_many_rows(target: Target) -> None:
    """More of them than one invocation walks."""
    arguments = tensor("M", 5, low=-1, high=1), tensor("M", 3, low=-1, high=1)
    live = {"M": (20_011, 1, 9001)}
    check_op(WEIGHT_GRADIENT, *arguments, live=live, target=target, tolerance=1e-4)


def test_weight_gradient_over_no_rows(target: Target) -> None:
    live = {"S": (3, 0, 1)}
    check_op(WEIGHT_GRADIENT, tensor("S", 5), tensor("S", 3), live=live, target=target)


@pytest.mark.long(every=5)
@pytest.mark.parametrize("given", [weight, tensor])  # a constant, or what the call brings
@pytest.mark.parametrize(
    ("depth", "columns", "group"), [(1, 8, 8), (13, 64, 32), (67, 134, 10), (131, 6, 64)]
)
def test_input_gradient(given: Any, depth: int, columns: int, group: int, target: Target) -> None:
    arguments = (
        tensor("M", depth, low=-1, high=1),
        given(values=packed(depth, 8 * columns)[:, : columns // 2], dtype="u8"),
        given(-(-columns // group), -(-depth // 4) * 4, low=0.01, high=0.2),
        group,
    )
    live = {"M": (67, 1, 5, 3)}
    check_op(INPUT_GRADIENT, *arguments, live=live, target=target, tolerance=1e-4)


@each_float
def test_input_gradient_in_float_types(dtype: str, target: Target) -> None:
    arguments = (
        tensor(2, "S", 13, low=-1, high=1),
        weight(values=packed(13, 64), dtype="u8"),
        weight(2, 13, low=0.01, high=0.2),
        32,
    )
    tolerance = 1e-4 if dtype == "f32" else 1e-2
    check_op(INPUT_GRADIENT, *arguments, dtype=dtype, target=target, tolerance=tolerance)


def test_input_gradient_over_many_outputs(target: Target) -> None:
    """More of them than one invocation walks."""
    weights = weight(values=packed(20_011, 8), dtype="u8")
    arguments = tensor("M", 20_011, low=-1, high=1), weights, weight(1, 20_011, low=0.01, high=0.2), 32
    live = {"M": (5, 0, 1)}
    check_op(INPUT_GRADIENT, *arguments, live=live, target=target, tolerance=1e-4)


def test_gradients_refuse() -> None:
    refuse_op(WEIGHT_GRADIENT, tensor(3, 5), tensor(4, 7), match="same number of rows", out=[(5, 7)])
    weights, scales = weight(values=packed(5, 32), dtype="u8"), weight(1, 5)
    out = [(3, 32)]
    refuse_op(INPUT_GRADIENT, tensor(3, 4), weights, scales, 32, match="one column per row", out=out)
    refuse_op(INPUT_GRADIENT, tensor(3, 5), weight(5, 16), scales, 32, match="two to a byte", out=out)
    refuse_op(INPUT_GRADIENT, tensor(3, 5), weights, scales, 0, match="must be positive", out=out)
    refuse_op(INPUT_GRADIENT, tensor(3, 5), weights, scales, 16, match="scales must be", out=out)


# An optimiser's step ----------------------------------------------------------------------------


@each_float
@each("name", [STEP, "adamw_step.default"])
def test_step(name: str, dtype: str, target: Target) -> None:
    given = tensor("S", 5), tensor("S", 5), tensor("S", 5, low=0, high=2), tensor("S", 5)
    check_op(name, *given, *RATES, dtype=dtype, target=target, live={"S": (7, 0, 1, 11)})


def test_a_step_without_decay_or_gradient() -> None:
    zeros = (tensor(values=(0.0,) * 3) for _ in range(3))
    check_op(STEP, tensor(3), *zeros, 1e-3, 0.9, 0.999, 1e-8, 0, 1.0, 1.0)


def test_a_step_is_that_of_pytorch(target: Target) -> None:
    """With gradients so small that epsilon counts, and a decay."""
    rate, beta1, beta2, eps, decay = 0.1, 0.9, 0.999, 0.01, 0.3
    before, gradient = torch.tensor([0.5, -1.0, 2.0]).double(), torch.tensor([1e-3, -0.02, 0.5]).double()
    parameter = torch.nn.Parameter(before.clone())
    parameter.grad = gradient.clone()
    torch.optim.AdamW([parameter], rate, (beta1, beta2), eps, decay).step()
    rates = (rate, beta1, beta2, eps, decay, 1 - beta1, 1 - beta2)
    zeros = torch.zeros(3).double(), torch.zeros(3).double()
    found, *_ = adamw_step(before.clone(), *zeros, gradient, *rates)
    torch.testing.assert_close(found, parameter.detach())
    given = (tensor(values=values.tolist()) for values in (before, *zeros, gradient))
    check_op(STEP, *given, *rates, target=target)


def test_steps_follow_one_another(target: Target) -> None:
    """A parameter and its moments that the graph keeps change from call to call."""
    random = np.random.default_rng(5)
    kept = weight(13), weight(13, low=-0.1, high=0.1), weight(13, low=0, high=0.1)
    gradient = tensor(13)
    given: dict[Leaf, Any] = {leaf: leaf.draw({}, "f32", random) for leaf in (*kept, gradient)}
    operator = OneOperator(STEP, (*kept, gradient, *RATES), given, [((13,), DType.F32)] * 3, target)
    expected = tuple(torch.from_numpy(given[leaf].astype(np.float64)) for leaf in kept)
    for _ in range(4):
        step = gradient.draw({}, "f32", random)
        outputs = operator.run({gradient: step})
        expected = adamw_step(*expected, torch.from_numpy(step.astype(np.float64)), *RATES)
        for leaf, output, result in zip(kept, outputs, expected, strict=True):
            np.testing.assert_allclose(output, result, rtol=1e-5, atol=1e-5)
            np.testing.assert_array_equal(operator.state(leaf), output)
    operator.close()


def test_the_step_refuses() -> None:
    x = tensor(3)
    out = [(3,)] * 3
    refuse_op(STEP, x, tensor(3), tensor(3), tensor(4), *RATES, match="one shape", out=out)
    rates = (*RATES[:-1], 0.0)
    refuse_op(STEP, x, tensor(3), tensor(3), tensor(3), *rates, match="cannot be 0", out=out)


# 4-bit weights anew -----------------------------------------------------------------------------


@each_float
@each(("columns", "group"), [(1, 32), (2, 1), (129, 64), (67, 7)])
def test_requantize(columns: int, group: int, dtype: str) -> None:
    arguments = tensor("S", columns), tensor(-(-columns // group), 12, low=0.05, high=0.9), group
    check_op(REQUANTIZE, *arguments, dtype=dtype, out="u8", live={"S": (7, 0, 1, 11)})


def test_weights_beside_a_half() -> None:
    """The nearest numbers to every half of a scale are rounded as their quotient in f32 is."""
    scales = np.array([[0.1, 0.37, -0.3, 1.0, 0.0, 1e-3]], np.float32)
    halves = scales.T * np.arange(-9.5, 9, dtype=np.float32)
    near = [halves]
    for limit in (np.float32(-99), np.float32(99)):
        number = halves
        near += [number := np.nextafter(number, limit) for _ in range(6)]
    latent = np.concatenate(near, 1)
    check_op(REQUANTIZE, tensor(values=latent), tensor(values=scales), 999, out="u8")


def test_requantize_refuses() -> None:
    out = [(3, 4)]
    refuse_op(REQUANTIZE, tensor(3, 8, 1), tensor(1, 3), 8, match="two dims", out=out)
    refuse_op(REQUANTIZE, tensor(3, 8), tensor(1, 3), 0, match="must be positive", out=out)
    refuse_op(REQUANTIZE, tensor(3, 8), tensor(1, 3), 4, match="scales must be", out=out)
    refuse_op(REQUANTIZE, tensor(3, 8), tensor(1, 2), 8, match="scales must be", out=out)
