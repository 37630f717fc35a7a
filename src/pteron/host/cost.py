"""What an operator will write and how long it will take, from its arguments by name, where PyTorch's shape
function does not tell: known before memory is taken."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import prod
from typing import TypeAlias

import numpy as np

from pteron.errors import HostError
from pteron.gpu.tensors import numbers
from pteron.graph import Shape
from pteron.host.rules import NamedArguments, require
from pteron.host.values import HostTensor

Work: TypeAlias = Callable[[NamedArguments, Sequence[Shape]], int]  # of arguments and what will be written
Shapes: TypeAlias = Callable[
    [NamedArguments], Mapping[str, Shape]
]  # of outputs, by name; others are no larger

# Shapes -----------------------------------------------------------------------------------------


def where_true(given: NamedArguments) -> Mapping[str, Shape]:
    """One row of places for each element that is not zero."""
    array = numbers(given["self"].array, given["self"].dtype)
    return {"out": (int(np.count_nonzero(array)), array.ndim)}


def selected(given: NamedArguments) -> Mapping[str, Shape]:
    """As many elements as the mask, broadcast, has set."""
    mask = given["mask"]
    require(mask.dtype.numpy == np.bool_, f"mask is {mask.dtype}")
    try:
        shape = np.broadcast_shapes(given["self"].array.shape, mask.array.shape)
    except ValueError as error:
        raise HostError(str(error)) from None
    return {"out": (int(np.count_nonzero(mask.array)) * (prod(shape) // max(1, mask.array.size)),)}


def interleaved(given: NamedArguments) -> Mapping[str, Shape]:
    """Every place as often as `repeats` says."""
    return {"out": (sum(given["repeats"].array.ravel().tolist()),)}


def bags(given: NamedArguments) -> Mapping[str, Shape]:
    """One row for each bag."""
    count = given["offsets"].array.size - bool(given["include_last_offset"])
    return {"out0": (count, given["weight"].array.shape[1])}


def normalized(given: NamedArguments) -> Mapping[str, Shape]:
    """As the input, whichever of its names the first output has."""
    return {name: given["input"].array.shape for name in ("out", "out0") if name in given}


# Work -------------------------------------------------------------------------------------------


def product_work(given: NamedArguments, written: Sequence[Shape]) -> int:
    """Every element of the output is a sum over the last dim of the first matrix."""
    first = next(given[name] for name in ("mat1", "batch1", "x1", "input", "self") if name in given)
    depth: int = first.array.shape[-1] if first.array.ndim else 1
    return prod(written[0]) * depth * _slowness(first)


def convolution_work(given: NamedArguments, written: Sequence[Shape]) -> int:
    """Every element of the output, or of the input where it is transposed, meets one window's weights."""
    weight, source = given["weight"].array.shape, given["input"].array.shape
    target = given["grad_output"].array.shape if "grad_output" in given else written[0]
    met: int = prod(source if given["transposed"] else target) * prod(weight[1:])
    return met * (2 if "grad_output" in given else 1) * _slowness(given["input"])


def convolution_columns(given: NamedArguments, written: Sequence[Shape]) -> int:
    """Bytes of the windows of one sample side by side, as the general way to convolve has them."""
    weight, source = given["weight"].array.shape, given["input"].array.shape
    target = given["grad_output"].array.shape if "grad_output" in given else written[0]
    columns: int = prod(weight[1:]) * prod((source if given["transposed"] else target)[2:])
    return 4 * columns


def _slowness(tensor: HostTensor) -> int:
    """How many products of f32 are done while one of this type is."""
    return 1 if str(tensor.dtype) in ("f32", "f64") else 8


def window_work(given: NamedArguments, written: Sequence[Shape]) -> int:
    """Every element of the output, or of a gradient, meets one window."""
    size: tuple[int, ...] = given["kernel_size"]
    window: int = size[0] ** 3 if len(size) == 1 else prod(size)  # one number stands for all dims
    return max(map(prod, written)) * window


def sorting_work(given: NamedArguments, written: Sequence[Shape]) -> int:
    """Comparisons: as many for each element as its row has doublings, 64 at most, each of memory far off."""
    count: int = given["self"].array.size
    return count * 64 * 16
