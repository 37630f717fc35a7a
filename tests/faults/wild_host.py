"""Call operators of the host's table with wild arguments; run by test_wild_host.py in a process of its own.

    python wild_host.py SECONDS SEED [OPERATOR]

Some arguments of a valid call are replaced: tensors of other shapes, types and contents, numbers at the
limits of what programs store, lists of other lengths, values of other kinds. Every call is printed to stdout
before it runs, so that after a crash the last line names the call. At the end the outcomes are printed as one
line of JSON.
"""

from __future__ import annotations

import faulthandler
import json
import resource
import sys
import time
import warnings
from collections import Counter
from pathlib import Path
from random import Random
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1] / "null"))
from host_arguments import good_arguments, output_dtype

from pteron.dtypes import DType
from pteron.errors import PteronError
from pteron.host.lookup import find_operator
from pteron.host.operator import HostOperator, Parameter
from pteron.host.torch_table import TABLE
from pteron.host.values import HostTensor, UnsetTensor

SECONDS_PER_CALL = 20  # after that, it hangs: the process ends, showing where
MEMORY_MAX = 1 << 29  # beyond what the process has after the imports
_EDGES = (
    -(1 << 63), -(1 << 31) - 1, -(1 << 31), -1000, -3, -2, -1, 0, 1, 2, 3, 4, 5, 7, 8, 16, 64, 1000, 65536,
    (1 << 31) - 1, 1 << 31, (1 << 62), (1 << 63) - 1,
)  # fmt: skip
_FLOATS = (float("nan"), float("inf"), float("-inf"), 0.0, -1.0, 0.5, 1e-300, 1e300, 1e-9, 1e9, 2.0)
_TEXTS = ("", "floor", "trunc", "tanh", "none", "sum", "mean", "amax", "x" * 100)
_SIZES = (0, 0, 1, 1, 2, 3, 4, 5, 6, 7, 16, 33)


class Wild:
    """Values by chance, the same ones for the same seed."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self._numpy = np.random.default_rng(seed)

    def arguments(self, name: str, operator: HostOperator) -> list[Any]:
        arguments = good_arguments(name, operator)
        for place, parameter in enumerate(operator.parameters):
            if isinstance(arguments[place], UnsetTensor):
                arguments[place] = UnsetTensor(output_dtype(name, parameter))
        for place in self.random.choices(range(len(arguments)), k=self.random.choice((1, 1, 2, 3, 6))):
            arguments[place] = self.value(arguments[place], operator.parameters[place])
        return arguments

    def value(self, good: Any, parameter: Parameter) -> Any:
        choose = self.random
        if choose.random() < 0.03:
            return choose.choice((None, 3, 0.5, "text", (), (1, 2), self.tensor()))
        if parameter.is_written and not parameter.is_read and "List" not in parameter.kind:
            return UnsetTensor(choose.choice(list(DType))) if choose.random() < 0.3 else good
        if isinstance(good, HostTensor):
            return self.like(good) if choose.random() < 0.6 else self.tensor()
        if "List[Optional[Tensor" in parameter.kind:
            return tuple(
                choose.choice((None, self.index(), self.tensor())) for _ in range(choose.randrange(6))
            )
        if "List[Tensor" in parameter.kind:
            of_one = self.tensor if parameter.is_read else lambda: UnsetTensor(choose.choice(list(DType)))
            return tuple(of_one() for _ in range(choose.randrange(5)))
        if "List[float" in parameter.kind:
            return tuple(choose.choice(_FLOATS) for _ in range(choose.randrange(5)))
        if "List[bool" in parameter.kind:
            return tuple(choose.random() < 0.5 for _ in range(choose.randrange(5)))
        if "List" in parameter.kind:
            return self.numbers(good)
        if "Tensor" in parameter.kind:
            return choose.choice((None, self.tensor(), self.index()))
        if "ScalarType" in parameter.kind or "MemoryFormat" in parameter.kind:
            return choose.randrange(-3, 50)
        if "float" in parameter.kind:
            return choose.choice((*_FLOATS, None))
        if "str" in parameter.kind:
            return choose.choice(_TEXTS)
        if "bool" in parameter.kind:
            return choose.choice((True, False, 7, None))
        return (
            choose.choice((*_EDGES, None)) if "int" in parameter.kind else choose.choice((*_EDGES, *_FLOATS))
        )

    def numbers(self, good: Any) -> tuple[int, ...]:
        """A list of integers: as long as a good one mostly, and most of it small."""
        length = (
            len(good) if isinstance(good, tuple) and self.random.random() < 0.7 else self.random.randrange(8)
        )
        edges = _EDGES if self.random.random() < 0.4 else range(-2, 9)
        return tuple(self.random.choice(edges) for _ in range(length))

    def like(self, good: HostTensor) -> HostTensor:
        """Of the same type, or the same shape."""
        if self.random.random() < 0.5:
            return self.filled(good.array.shape, self.random.choice(list(DType)))
        return self.filled(self.shape(), good.dtype) if self.random.random() < 0.5 else self.contents(good)

    def contents(self, good: HostTensor) -> HostTensor:
        return self.filled(good.array.shape, good.dtype)

    def tensor(self) -> HostTensor:
        return self.filled(self.shape(), self.random.choice(list(DType)))

    def index(self) -> HostTensor:
        return self.filled(self.shape(2), self.random.choice((DType.I64, DType.I64, DType.I32, DType.BOOL)))

    def shape(self, rank_max: int = 6) -> tuple[int, ...]:
        return tuple(self.random.choice(_SIZES) for _ in range(self.random.randrange(rank_max)))

    def filled(self, shape: tuple[int, ...], dtype: DType) -> HostTensor:
        """Small numbers, or those at the edges of the type."""
        size = int(np.prod(shape))
        with np.errstate(all="ignore"), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            if dtype.is_float or self.random.random() < 0.6:
                array = self._numpy.integers(-2, 6, size).astype(dtype.numpy)
            else:
                array = self._numpy.choice(np.array(_EDGES), size).astype(dtype.numpy)
            if dtype.is_float and dtype is not DType.BF16 and self.random.random() < 0.4:
                array = self._numpy.choice(np.array(_FLOATS), size).astype(dtype.numpy)
        array = array.reshape(shape)
        if array.ndim >= 2 and self.random.random() < 0.2:
            array = np.ascontiguousarray(array.T).T  # the same elements, in another order in memory
        return HostTensor(array, dtype)


def call(operator: HostOperator, arguments: list[Any]) -> str:
    """What the interpreter does with an operator; the outcome in a word."""
    try:
        operator.run(arguments)
    except PteronError as error:
        return type(error).__name__
    except MemoryError:
        return "MemoryError"
    except Exception as error:
        return f"foreign {type(error).__name__}"
    return "ran"


def shown(value: Any) -> str:
    if isinstance(value, HostTensor):
        low, high = (value.array.min(), value.array.max()) if value.array.size else ("", "")
        return f"{value.dtype}{list(value.array.shape)}({low}..{high})"
    if isinstance(value, tuple):
        return f"({', '.join(map(shown, value))})"
    return str(value.dtype) if isinstance(value, UnsetTensor) else repr(value)


def main() -> None:
    seconds, seed = float(sys.argv[1]), int(sys.argv[2])
    names = sys.argv[3:] or list(TABLE)
    found = {name: find_operator(name) for name in names}
    relu = find_operator("aten::relu.out")
    assert relu is not None
    call(relu, good_arguments("aten::relu.out", relu))
    status = Path("/proc/self/status").read_text("ascii")
    data_bytes = next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmData")) << 10
    resource.setrlimit(resource.RLIMIT_DATA, (data_bytes + MEMORY_MAX, resource.RLIM_INFINITY))
    wild = Wild(seed)
    outcomes: Counter[str] = Counter()
    ran: Counter[str] = Counter()
    strange: dict[str, str] = {}
    ends = time.monotonic() + seconds
    number = 0
    while time.monotonic() < ends:
        name = names[number % len(names)]
        number += 1
        operator = found[name]
        assert operator is not None
        arguments = wild.arguments(name, operator)
        described = f"{name}({', '.join(map(shown, arguments))})"
        print(described, flush=True)
        faulthandler.dump_traceback_later(SECONDS_PER_CALL, exit=True)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            outcome = call(operator, arguments)
        faulthandler.cancel_dump_traceback_later()
        outcomes[outcome] += 1
        ran[name] += outcome == "ran"
        if outcome not in ("ran", "HostError"):
            strange.setdefault(f"{name} {outcome}", described)
    never = [name for name in names if not ran[name]]
    print(json.dumps({"calls": number, "outcomes": outcomes, "strange": strange, "never": never}))


if __name__ == "__main__":
    main()
