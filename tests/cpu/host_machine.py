"""A method written instruction by instruction, run by the interpreter without a device."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from pteron import DType
from pteron.format.records import EValue, Instruction, MethodRecord, TensorRecord
from pteron.host.lookup import find_operator
from pteron.host.operator import HostOperator
from pteron.host.values import HostTensor
from pteron.runtime.interpreter import Interpreter

X = np.array([1, 2, 3], np.float32)


def tensor(
    *sizes: int,
    dtype: DType = DType.F32,
    data: Any = None,
    is_constant: bool = False,
    dynamism: Any = "bound",
) -> TensorRecord:
    view = None if data is None else memoryview(np.asarray(data, dtype.numpy).tobytes())
    is_mutable = data is not None and not is_constant
    order = tuple(range(len(sizes)))
    return TensorRecord(dtype, sizes, order, dynamism, view, is_constant, is_mutable, None, False)


class Machine:
    """A method of one input, %0, written out by hand."""

    def __init__(
        self,
        values: Sequence[EValue],
        operators: Sequence[str],
        instructions: Sequence[Instruction],
        outputs: Sequence[int] = (1,),
    ) -> None:
        found = [find_operator(name) for name in operators]
        if None in found:
            pytest.skip("needs PyTorch")
        record = MethodRecord(
            "forward", tuple(values), (0,), tuple(outputs), tuple(instructions), tuple(operators), (),
        )  # fmt: skip
        runnable: list[HostOperator] = [operator for operator in found if operator is not None]
        self.interpreter = Interpreter("written.pte, method forward", record, runnable, [])

    def __call__(self, x: np.ndarray[Any, Any] = X) -> list[Any]:
        dtype = DType.of(x.dtype)
        assert dtype is not None
        outputs = self.interpreter.run([HostTensor(x, dtype)], keep=False)
        self.interpreter.commit_states()
        return [output.array if isinstance(output, HostTensor) else output for output in outputs]
