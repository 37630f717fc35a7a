"""ATen operators that NumPy runs with PyTorch's results: programs that call only these need no PyTorch.

The modules `numpy_elementwise` and `numpy_layout` define them: the operators that exporters leave outside the
delegates, and siblings that cost one line of a table. Any other operator, and element types or arguments that
these functions do not cover, are left to PyTorch. `python -m conformance.host_operators` counts operators in
programs. Of 240 programs (fixtures, a case of each operator of ExecuTorch's suites, whole networks, language
models) these call, outside delegates:

    any 6, mul 5, permute 4, relu 3, cumsum 3, add 2, where 2, expand 2; once each abs, amin, eq, flip, full,
    full_like, gt, logical_not, repeat, select, squeeze, sub, sum (of integers), unsqueeze, view; and in
    programs without a delegate amax, argmax, argmin, ceil, floor, masked_fill, trunc.

PyTorch runs the others: _adaptive_avg_pool2d 10, addmm 4, erf 3, gelu 2, adaptive_max_pool2d 2; once each
atan2, bmm, copy_, index_put, log1p, mean, sigmoid, slice_scatter, _softmax, sort.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import isinf
from typing import Any, TypeAlias, cast

import numpy as np

from pteron.dtypes import DType
from pteron.errors import HostError
from pteron.extras import pip_install
from pteron.host.operator import Arguments, HostOperator, Parameter, check_kinds
from pteron.host.tensors import bf16_bits, widen_bf16
from pteron.host.values import HostTensor, UnsetTensor
from pteron.ops.operand import HostArray


class NeedsTorch(Exception):  # noqa: N818  # no error where PyTorch is installed
    """Arguments that the NumPy version of an operator leaves to PyTorch."""


Output: TypeAlias = HostTensor | UnsetTensor  # only its element type is read
Compute: TypeAlias = Callable[..., HostArray]  # in memory of its own
FindTorch: TypeAlias = Callable[[str], HostOperator | None]
NUMPY: dict[str, tuple[Compute, tuple[Parameter, ...]]] = {}


def define(names: str, parameters: str) -> Callable[[Compute], Compute]:
    """Register a function as one or more ATen operators. `parameters` lists kinds and names, as in "Tensor
    self, int dim". The function takes their values and, as the last argument, the output."""
    pairs = [text.split() for text in parameters.split(", ")]
    read = [Parameter(name, kind) for kind, name in pairs]
    schema = (*read, Parameter("out", "Tensor", is_written=True, is_read=False))

    def register(compute: Compute) -> Compute:
        for name in names.split():
            NUMPY[f"aten::{name}"] = compute, schema
        return compute

    return register


def find_numpy_operator(name: str, find_torch: FindTorch) -> HostOperator | None:
    """An operator by its full name, or None if NumPy does not run it."""
    if name not in NUMPY:
        return None
    compute, parameters = NUMPY[name]

    def run(arguments: Arguments) -> Mapping[int, object]:
        given = arguments[: len(parameters)]
        check_kinds(given, parameters)
        try:
            with np.errstate(all="ignore"):  # integers wrap, and divisions by 0 give what IEEE says
                result = compute(*given)
        except NeedsTorch as reason:
            found = find_torch(name)
            if found is None:
                raise HostError(f"{reason} needs PyTorch: {pip_install('host')}") from None
            return found.run(arguments)
        return {len(given) - 1: HostTensor(np.asarray(result), given[-1].dtype)}

    def run_dry(arguments: Arguments) -> Mapping[int, object]:
        found = find_torch(name)
        return found.run_dry(arguments) if found and found.run_dry else run(arguments)

    return HostOperator(run, parameters, run_dry)


# Element types ----------------------------------------------------------------------------------

# In f16 and bf16 PyTorch rounds differently from kernel to kernel.
_COVERED = frozenset(DType) - {DType.F16, DType.BF16}


def shared_type(*operands: HostTensor | float) -> DType:
    """The element type that all tensors among the operands share. If they differ, PyTorch has to promote."""
    types = {operand.dtype for operand in operands if isinstance(operand, HostTensor)}
    if len(types) > 1 or not types <= _COVERED:
        raise NeedsTorch(f"arithmetic of {' and '.join(sorted(map(str, types)))}")
    return types.pop()


def number_as(number: float, dtype: DType) -> HostArray:
    """A number as one element of a type that can hold it without promotion."""
    if dtype.is_float:
        with np.errstate(over="ignore"):
            single = np.asarray(number, np.float64 if dtype is DType.F64 else np.float32)
            made = bf16_bits(single) if dtype is DType.BF16 else single.astype(dtype.numpy)
            value = widen_bf16(made, dtype)
            is_rounded = dtype in (DType.F16, DType.BF16) and value != number
        if is_rounded or (np.isinf(value) and not isinf(number)):
            raise NeedsTorch(f"the number {number} in {dtype}")
        return made
    if dtype is DType.BOOL:
        if not isinstance(number, bool):
            raise NeedsTorch(f"the number {number} in {dtype}")
        return np.asarray(number)
    bounds = np.iinfo(cast(Any, dtype.numpy))
    if isinstance(number, float) or not bounds.min <= number <= bounds.max:
        raise NeedsTorch(f"the number {number} in {dtype}")
    return np.asarray(number, dtype.numpy)
