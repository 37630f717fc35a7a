"""What suites ask of lowered programs, tensors and errors of executorch."""

from __future__ import annotations

from functools import cache
from typing import Any

import torch
import torch._export.utils as torch_export
from torch.utils._pytree import tree_leaves

from conformance.record import Array
from pteron.export.lowering import cache_patterns

cache_patterns()

# Every decomposition looks all operators up many times over, lest one was registered since. None is.
torch_export._materialize_cpp_cia_ops = cache(torch_export._materialize_cpp_cia_ops)


def delegates_of(program: Any) -> list[str]:
    """The delegates that a program calls, by backend."""
    return [delegate.id for plan in program.executorch_program.execution_plan for delegate in plan.delegates]


def to_arrays(values: Any) -> tuple[Array, ...]:
    """The tensors and numbers of a nest, flat, as NumPy holds them."""
    return tuple(torch.as_tensor(value).detach().contiguous().numpy() for value in tree_leaves(values))
