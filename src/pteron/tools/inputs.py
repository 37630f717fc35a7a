"""The inputs of a method: values from files and the command line, random values for the rest."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from pteron.dtypes import DType
from pteron.errors import DtypeError, FormatError, InputError, ShapeError
from pteron.format.source import open_file
from pteron.graph import Shape
from pteron.host.tensors import widen_bf16
from pteron.runtime import ValueSpec
from pteron.runtime.specs import dependent_dims

_INTEGERS_BELOW = 8  # random integers are often indices
_ARRAY_FILES = (".npy", ".npz", ".json")


@dataclass(frozen=True, slots=True)
class Input:
    value: Any
    origin: str


@dataclass(frozen=True, slots=True)
class LiveSize:
    """The live size of one dim of one input, or of every dynamic dim (`input` is None)."""

    size: int
    input: int | None = None
    dim: int | None = None

    def __str__(self) -> str:
        return str(self.size) if self.input is None else f"{self.input}.{self.dim}={self.size}"


def as_float(array: npt.NDArray[Any], dtype: DType | None) -> npt.NDArray[np.float64]:
    """An array as float64; NumPy holds bf16 as its raw bits."""
    return (array if dtype is None else widen_bf16(array, dtype)).astype(np.float64)


def read_inputs(texts: Sequence[str]) -> list[Input]:
    """Inputs in order: a .npy or .json file is one input, a .npz file one per array, other texts are
    values."""
    return [given for text in texts for given in _read_input(text)]


def fill_inputs(
    specs: Sequence[ValueSpec], given: Sequence[Input], sizes: Sequence[LiveSize], seed: int
) -> list[Input]:
    """The given inputs, then random ones."""
    for index, (spec, each) in enumerate(zip(specs, given, strict=False)):
        _check_width(spec, each, index)
    shapes = live_shapes(specs, sizes)
    generator = np.random.default_rng(seed)
    drawn = [_random_input(spec, shape, generator) for spec, shape in zip(specs, shapes, strict=True)]
    return [*given, *drawn[len(given) :]]


def _check_width(spec: ValueSpec, given: Input, index: int) -> None:
    """Explain the most frequent mistake: NumPy saves float64 by default, which few programs take."""
    found = getattr(given.value, "dtype", None)
    if found == np.float64 and spec.dtype is not None and spec.dtype.is_float and spec.dtype is not DType.F64:
        narrow = {DType.F16: "float16"}.get(spec.dtype, "float32")
        raise DtypeError(
            f"input {index} ({given.origin}): expected {spec}, got f64; "
            f"save it as numpy.save(file, array.astype(numpy.{narrow}))"
        )


def live_shapes(specs: Sequence[ValueSpec], sizes: Sequence[LiveSize]) -> list[Shape]:
    """The shape of each input: its maximum, except for the dims with a chosen size and those that depend on
    them."""
    shapes = [list(spec.shape_max) for spec in specs]
    for chosen in sizes:
        for input, dim in _places(specs, chosen):
            expected = specs[input].misfit_of_dim(dim, chosen.size)
            if expected:
                raise ShapeError(f"dim {chosen}: dim {dim} of input {input} is {expected} ({specs[input]})")
            shapes[input][dim] = chosen.size
            for other, at, size in dependent_dims(specs, input, dim, chosen.size):
                shapes[other][at] = size
    return [tuple(shape) for shape in shapes]


def _places(specs: Sequence[ValueSpec], chosen: LiveSize) -> list[tuple[int, int]]:
    """The (input, dim) pairs that a size applies to."""
    dynamic = [(i, d) for i, spec in enumerate(specs) for d, free in enumerate(spec.dynamic) if free]
    listed = ", ".join(f"{i}.{d}" for i, d in dynamic) or "none"
    if chosen.input is None:
        if not dynamic:
            raise InputError(f"dim {chosen}: the method has no dynamic dims")
        return dynamic
    place = (chosen.input, chosen.dim or 0)
    if place not in dynamic:
        raise InputError(f"dim {chosen}: no such dynamic dim; the method has {listed} (input.dim)")
    return [place]


def _random_input(spec: ValueSpec, shape: Shape, generator: np.random.Generator) -> Input:
    if spec.dtype is None:
        return Input(spec.value, "as exported")
    if spec.dtype is DType.BOOL:
        return Input(generator.integers(0, 2, shape).astype(np.bool_), "random")
    if spec.dtype is DType.BF16:
        bits = generator.standard_normal(shape).astype(np.float32).view(np.uint32)
        return Input((bits >> 16).astype(np.uint16), "random")
    if spec.dtype.is_float:
        return Input(generator.standard_normal(shape).astype(spec.dtype.numpy), "random")
    if np.prod(shape) == 1:  # a position or a length: only 0 is valid for all other inputs
        return Input(np.zeros(shape, spec.dtype.numpy), "zero")
    return Input(generator.integers(0, _INTEGERS_BELOW, shape).astype(spec.dtype.numpy), "random")


def _read_input(text: str) -> list[Input]:
    path = Path(text)
    if path.suffix not in _ARRAY_FILES:
        try:
            return [Input(json.loads(text), text)]
        except ValueError:
            kinds = ", ".join(_ARRAY_FILES)
            raise InputError(
                f"input {text}: neither a value (3, 2.5, true, [1, 2]) nor a file ({kinds})"
            ) from None
    try:
        open_file(path).close()  # a clear message for missing files and folders
        if path.suffix == ".json":
            return [Input(json.loads(path.read_text("utf-8")), path.name)]
        loaded = np.load(path, allow_pickle=False)
        if path.suffix == ".npy":
            return [Input(loaded, path.name)]
        with loaded:
            return [Input(loaded[key], f"{path.name} {key}") for key in loaded.files]
    except FormatError as error:
        raise InputError(f"input {error}") from None
    except Exception as error:  # NumPy's depend on its version
        raise InputError(f"input {text}: the file cannot be read: {error}") from None
