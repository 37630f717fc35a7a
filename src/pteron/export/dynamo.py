"""`torch.compile(model, backend="pteron")`: graphs that Dynamo captured in, callables that run on the GPU
out.

Dynamo passes parameters and buffers as inputs, and sizes of dynamic dims as integers. Parameters and buffers
become constants of the program. It is lowered again if one is replaced, or written by an operation that
increments its version (writes through `.data` or NumPy do not). Buffers that the graph writes to stay inputs
and are written back; buffers that change often between calls become inputs.
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

_PROGRAMS_KEPT = 16  # per captured graph, for different shapes
_CHANGES_MAX = 2  # a buffer that changed this often between calls becomes an input


def backend(
    graph_module: GraphModule, example_inputs: Sequence[object], *, options: Mapping[str, Any] | None = None
) -> Callable[..., Any]:
    """Dynamo's entry point. Lowering happens at the first call, because Dynamo's tracing forbids it here.

    `options` of `torch.compile` are `force_fp16`, `device` and `use_cache`, as in `pteron.compile`.
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
    """One graph of Dynamo, with its lowered programs: for the current weights, one per set of shapes."""

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
            with exporting(), self._lock:  # lock order: exporting() first, everywhere
                lowered = self._find(inputs) or self._lower(inputs)
        return lowered.compiled(*(inputs[position] for position in lowered.live))

    @property
    def programs(self) -> tuple[CompiledModule, ...]:
        return tuple(lowered.compiled for lowered in self._programs)

    def _find(self, inputs: Sequence[Any]) -> _Lowered | None:
        """The program for these weights, shapes and integers."""
        changed = [seen.position for seen in self._constants if not seen.is_unchanged(inputs)]
        if changed:
            self._programs.clear()  # running calls hold references
            self._constants.clear()
            self._changes.update(changed)
        numbers = self.capture.free_numbers(inputs)
        for lowered in self._programs:
            tensors = [inputs[position] for position in lowered.live]
            if lowered.numbers == numbers and lowered.compiled.signature.fits(tensors):
                return lowered
        return None

    def _lower(self, inputs: Sequence[Any]) -> _Lowered:
        constants = [
            position
            for position, is_parameter in self.capture.constants(inputs).items()
            if is_parameter or self._changes[position] < _CHANGES_MAX
        ]
        exported, live = self._export(inputs, constants)
        written = {buffer_position(name) for name in make_functional(exported).states}
        if written:  # their values belong to the caller's module
            constants = [position for position in constants if position not in written]
            exported, live = self._export(inputs, constants)
        self._constants = [_Seen.of(position, inputs[position]) for position in constants]
        compiled = compile_exported(exported, self.capture.name, self.options, self.device, self.use_cache)
        if not compiled.signature.fits([inputs[position] for position in live]):
            raise ShapeError(f"{self.capture.name}: torch.export specialised it to other shapes")
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
    """A program, the positions of its inputs among Dynamo's, and the integers that are constants in it."""

    compiled: CompiledModule
    live: list[int]
    numbers: dict[int, int]


@dataclass(frozen=True)
class _Seen:
    """The state of a parameter or buffer when it became a constant."""

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
