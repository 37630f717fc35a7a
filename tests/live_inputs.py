"""Inputs for any method: at its maximum shapes, below them, and again."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

import pteron


def live_inputs(method: pteron.Method, *, fill: int, bytes_max: int) -> Iterator[list[object]]:
    """Inputs at the maximum shapes, at half of them, at ones and at the maximum again, where dims vary: none
    where one would take more than `bytes_max`.

    All their elements are `fill`; but a single integer, which is a position mostly, takes other values too.
    """
    shrinks: tuple[Callable[[int], int], ...] = (int, lambda size: -(-size // 2), lambda size: 1, int)
    for shrink, position in zip(shrinks, (0, 1, 2, 0), strict=True):
        inputs: list[object] = []
        for spec in method.inputs:
            if spec.kind != "tensor" or spec.dtype is None:
                inputs.append(spec.value if spec.value is not None else 1)
                continue
            dims = zip(spec.shape_max, spec.dynamic, strict=True)
            shape = tuple(shrink(size) if free else size for size, free in dims)
            if np.prod(shape, dtype=np.float64) * spec.dtype.itemsize > bytes_max:
                return
            is_position = shape == (1,) and not spec.dtype.is_float
            inputs.append(np.full(shape, position if is_position else fill, spec.dtype.numpy))
        yield inputs
