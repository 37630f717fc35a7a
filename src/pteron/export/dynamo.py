"""`torch.compile(model, backend="pteron")`: graphs that Dynamo captured enter, callables on the GPU leave.

Dynamo passes parameters and buffers among the inputs, and sizes of dynamic dims as integers. Parameters and
buffers become constants of the program, and it is lowered again once one of them has changed: it was
replaced, or written to by an operation that PyTorch counts (writes through `.data` or NumPy are not counted).
Buffers that the graph itself writes to stay inputs, and are written back; those that others write to again
and again become inputs.
"""

from __future__ import annotations

import threading
import weakref
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from pteron.errors import InputError, ShapeError
from pteron.export.compiled import CompiledModule
from pteron.export.compiling import compile_exported, export
from pteron.export.dynamo_capture import Capture, buffer_position, make_module
from pteron.export.graph_passes import make_functional
from pteron.export.lowering import Options, exporting
from pteron.extras import check_installed
from pteron.gpu.fork import new_lock

if TYPE_CHECKING:
    from torch.fx import GraphModule

_PROGRAMS_KEPT = 16  # for one captured graph, by shapes
_CHANGES_MAX = 2  # a buffer that changed as often between calls is an input from then on


def backend(
    graph_module: GraphModule, example_inputs: Sequence[object], *, options: Mapping[str, Any] | None = None
) -> Callable[..., Any]:
    """Dynamo's entry point; lowering waits for the first call, since Dynamo's own tracing forbids it.

    The options, those of `torch.compile`, are `force_fp16`, `device` and `use_cache` of `pteron.compile`.
    """
    check_installed(("torch", "torchao", "executorch"), "compiling a module", "export")
    chosen = dict(options or {})
    force_fp16, device = chosen.pop("force_fp16", False), chosen.pop("device", None)
    use_cache = chosen.pop("use_cache", True)
    if chosen:
        raise InputError(f"unknown options: {', '.join(chosen)}; known are force_fp16, device and use_cache")
    return CapturedGraph(Capture(graph_module), Options(force_fp16), device, use_cache)


@dataclass
class CapturedGraph:
    """One graph of Dynamo's, with the programs it was lowered to: for these weights, by shapes."""

    capture: Capture
    options: Options
    device: Any
    use_cache: bool
    _lock: threading.RLock = field(default_factory=new_lock)
    _constants: list[_Seen] = field(default_factory=list)
    _changes: Counter[int] = field(default_factory=Counter)
    _programs: list[_Lowered] = field(default_factory=list)

    def __call__(self, *inputs: Any) -> Any:
        with self._lock:
            lowered = self._find(inputs)
        if lowered is None:
            with exporting(), self._lock:  # in this order everywhere: who holds the second waits for nobody
                lowered = self._find(inputs) or self._lower(inputs)
        return lowered.compiled(*(inputs[position] for position in lowered.live))

    @property
    def programs(self) -> tuple[CompiledModule, ...]:
        """What it was lowered to up to now."""
        return tuple(lowered.compiled for lowered in self._programs)

    def _find(self, inputs: Sequence[Any]) -> _Lowered | None:
        """The program for these weights, shapes and numbers."""
        changed = [seen.position for seen in self._constants if not seen.is_unchanged(inputs)]
        if changed:
            self._programs.clear()  # freed with the last call that uses them
            self._constants.clear()
            self._changes.update(changed)
        numbers = self.capture.free_numbers(inputs)
        for lowered in self._programs:
            tensors = [inputs[position] for position in lowered.live]
            if lowered.numbers == numbers and lowered.compiled.signature.fits(tensors):
                return lowered
        return None

    def _lower(self, inputs: Sequence[Any]) -> _Lowered:
        """A new program for them, which is kept."""
        constants = [
            position
            for position, is_parameter in self.capture.constants(inputs).items()
            if is_parameter or self._changes[position] < _CHANGES_MAX
        ]
        exported, live = self._export(inputs, constants)
        written = {buffer_position(name) for name in make_functional(exported).states}
        if written:  # they live on in the caller's module
            constants = [position for position in constants if position not in written]
            exported, live = self._export(inputs, constants)
        self._constants = [_Seen.of(position, inputs[position]) for position in constants]
        compiled = compile_exported(exported, self.capture.name, self.options, self.device, self.use_cache)
        if not compiled.signature.fits([inputs[position] for position in live]):
            raise ShapeError(f"{self.capture.name}: PyTorch exported it for other shapes than the call has")
        lowered = _Lowered(compiled, live, self.capture.free_numbers(inputs))
        self._programs.insert(0, lowered)
        del self._programs[_PROGRAMS_KEPT:]
        return lowered

    def _export(self, inputs: Sequence[Any], constants: list[int]) -> tuple[Any, list[int]]:
        live = self.capture.live_tensors(inputs, constants)
        module = make_module(self.capture, inputs, constants, live)
        shapes = [self.capture.dynamic_dims(position, inputs[position]) for position in live]
        tensors = tuple(inputs[position] for position in live)
        return export(module, tensors, {}, (tuple(shapes),)), live


@dataclass(frozen=True)
class _Lowered:
    """A program, the inputs of Dynamo's that it takes, and the numbers that are built into it."""

    compiled: CompiledModule
    live: list[int]
    numbers: dict[int, int]


@dataclass(frozen=True)
class _Seen:
    """A parameter or buffer as it was when it became a constant."""

    position: int
    tensor: weakref.ref[Any]
    address: int
    version: int

    @classmethod
    def of(cls, position: int, tensor: Any) -> _Seen:
        return cls(position, weakref.ref(tensor), tensor.data_ptr(), tensor._version)

    def is_unchanged(self, inputs: Sequence[Any]) -> bool:
        known = self.tensor()
        if known is None or known is not inputs[self.position]:
            return False
        return bool(known.data_ptr() == self.address and known._version == self.version)
