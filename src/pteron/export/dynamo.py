"""`torch.compile(model, backend="pteron")`: graphs that Dynamo captured in, callables that run on the GPU
out.

Dynamo passes parameters and buffers as inputs, and sizes of dynamic dims as integers. Parameters and buffers
become constants of the program. It is lowered again if one is replaced, or written by an operation that
increments its version (writes through `.data` or NumPy do not). Buffers that the graph writes to stay inputs
and are written back; buffers that change often between calls become inputs.

A graph that cannot be lowered runs in eager mode, with a warning.
"""

from __future__ import annotations

import threading
import warnings
import weakref
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any

import torch
from torch.export import Dim
from torch.fx import GraphModule
from torch.utils._sympy.numbers import int_oo

from pteron.errors import InputError, LoweringError
from pteron.export.compiled import Loading, TracedModule
from pteron.export.compiling import compile_exported, export
from pteron.export.graph_passes import written_buffers
from pteron.export.lowering import Options, exporting, quiet
from pteron.export.progress import Enter, shown_stages
from pteron.extras import check_installed
from pteron.gpu.fork import new_lock

_PROGRAMS_KEPT = 16  # per captured graph, for different shapes
_CALL_OPTIONS = {"use_cache": True, "fullgraph": False}
_CHANGES_MAX = 2  # a buffer that changed this often between calls becomes an input


def backend(
    graph_module: GraphModule,
    example_inputs: Sequence[object],
    *,
    options: Mapping[str, Any] | None = None,
    mode: str | None = None,
) -> CapturedGraph:
    """Dynamo's entry point. Lowering happens at the first call, because Dynamo's tracing forbids it here.

    `options` of `torch.compile` are `force_fp16`, `partitioner`, `device`, `digits`, `products`,
    `use_cache` and `fullgraph`, as in `pteron.compile`.
    """
    check_installed(("torch", "torchao", "executorch"), "compiling a module", "export")
    if mode not in (None, "default"):
        raise InputError(f"mode={mode!r}: Pteron has no modes; options= takes force_fp16 and others")
    chosen = dict(options or {})
    call = {name: chosen.pop(name, value) for name, value in _CALL_OPTIONS.items()}
    at_load = [field.name for field in fields(Loading)]
    loading = Loading(**{name: chosen.pop(name, None) for name in at_load})
    known = [field.name for field in fields(Options)]
    if unknown := [name for name in chosen if name not in known]:
        raise InputError(
            f"unknown options: {', '.join(unknown)}; known are {', '.join([*known, *at_load, *call])}"
        )
    return CapturedGraph(Capture(graph_module), Options(**chosen), loading, **call)


@dataclass
class CapturedGraph:
    """One graph of Dynamo, with its lowered programs: for the current weights, one per set of shapes."""

    capture: Capture
    options: Options
    loading: Loading
    use_cache: bool
    fullgraph: bool
    is_eager: bool = False  # whether it could not be lowered
    _lock: threading.RLock = field(default_factory=new_lock)
    _constants: list[_Seen] = field(default_factory=list)
    _changes: Counter[int] = field(default_factory=Counter)
    _programs: list[_Lowered] = field(default_factory=list)

    def __call__(self, *inputs: Any) -> Any:
        lowered = self._lowered(inputs)
        live = [] if lowered is None else [inputs[position] for position in lowered.live]
        if lowered is None or lowered.compiled.shared_inputs(live) is not None:
            return self.capture.graph_module(*inputs)
        return self.capture.with_views(lowered.compiled(*live), inputs)

    def _lowered(self, inputs: Sequence[Any]) -> _Lowered | None:
        """The program for these inputs; None if the graph cannot be lowered."""
        if self.is_eager:
            return None
        with self._lock:
            found = self._find(inputs)
        if found is not None:
            return found
        with exporting(), self._lock:  # lock order: exporting() first, everywhere
            try:
                found = self._find(inputs)
                if found is None:
                    with shown_stages(self.capture.name) as enter:
                        found = self._lower(inputs, enter)
                return found
            except LoweringError as error:
                if self.fullgraph:
                    raise
                warnings.warn(f"a graph of torch.compile runs in eager mode: {error}", stacklevel=3)
                self.is_eager = True
                return None

    @property
    def programs(self) -> tuple[TracedModule, ...]:
        return tuple(lowered.compiled for lowered in self._programs)

    def _find(self, inputs: Sequence[Any]) -> _Lowered | None:
        """The program for these weights, shapes and numbers."""
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

    def _lower(self, inputs: Sequence[Any], enter: Enter) -> _Lowered:
        _check_gradients(inputs)
        if self.capture.operators["as_strided"] and any(_is_strided(each) for each in inputs):
            raise LoweringError(f"{self.capture.name} calls as_strided, and an input is not contiguous")
        if self.capture.has_unknown_views:
            raise LoweringError(f"outputs of {self.capture.name} are views of a tensor that is no output")
        enter("exporting")
        constants = [
            position
            for position, is_parameter in self.capture.constants(inputs).items()
            if is_parameter or self._changes[position] < _CHANGES_MAX
        ]
        exported, live = self._export(inputs, constants)
        with quiet():
            written = set(map(buffer_position, written_buffers(exported)))
        if written:  # their values belong to the caller's module
            constants = [position for position in constants if position not in written]
            exported, live = self._export(inputs, constants)
        self._constants = [_Seen.of(position, inputs[position]) for position in constants]
        compiled = compile_exported(
            exported,
            self.capture.name,
            self.options,
            self.loading,
            use_cache=self.use_cache,
            fullgraph=self.fullgraph,
            enter=enter,
        )
        if not compiled.signature.fits([inputs[position] for position in live]):
            raise LoweringError(f"{self.capture.name}: torch.export specialised it to other shapes")
        lowered = _Lowered(compiled, live, self.capture.free_numbers(inputs))
        self._programs.insert(0, lowered)
        del self._programs[_PROGRAMS_KEPT:]
        return lowered

    def _export(self, inputs: Sequence[Any], constants: list[int]) -> tuple[Any, list[int]]:
        live = self.capture.live_tensors(inputs, constants)
        module = make_module(self.capture, inputs, constants, live)
        shapes = [self.capture.dynamic_dims(position, inputs[position]) for position in live]
        tensors = tuple(inputs[position] for position in live)
        return export(module, tensors, {}, (tuple(shapes),) if live else None), live


@dataclass(frozen=True)
class _Lowered:
    """A program, the positions of its inputs among Dynamo's, and the numbers that are constants in it."""

    compiled: TracedModule
    live: list[int]
    numbers: dict[int, float]


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


class Capture:
    """A captured graph; inputs are identified by position."""

    def __init__(self, graph_module: GraphModule) -> None:
        self.graph_module = graph_module
        self.name = graph_module._get_name()
        self.operators = Counter(
            str(getattr(node.target, "__name__", node.target))
            for node in graph_module.graph.nodes
            if node.op.startswith("call_")
        )
        self._placeholders = [node for node in graph_module.graph.nodes if node.op == "placeholder"]
        self._examples = [node.meta.get("example_value") for node in self._placeholders]
        self._floats = {at for at, node in enumerate(self._placeholders) if _is_float(node)}
        # Symbol of a dynamic dim -> (position, dim) of a tensor that has it.
        self._sizes: dict[Any, tuple[int, int]] = {}
        for position, example in enumerate(self._examples):
            if isinstance(example, torch.Tensor):
                for dim, size in enumerate(example.shape):
                    if isinstance(size, torch.SymInt):
                        self._sizes.setdefault(size.node.expr, (position, dim))

        returned = [getattr(node, "meta", {}).get("example_value") for node in self._returned()]
        self._views, self.has_unknown_views = find_views(self._examples, returned)

    def _returned(self) -> Sequence[Any]:
        (returned,) = self.graph_module.graph.output_node().args
        return returned if isinstance(returned, (list, tuple)) else (returned,)

    def with_views(self, outputs: Any, inputs: Sequence[Any]) -> Any:
        """The outputs, with views where the graph returns views of inputs or of other outputs."""
        if not self._views:
            return outputs
        made = list(outputs)
        for position, view in self._views.items():
            made[position] = view.of(inputs[view.source] if view.is_of_input else made[view.source])
        return tuple(made)

    def constants(self, inputs: Sequence[Any]) -> dict[int, bool]:
        """Positions of parameters (True) and buffers (False). Inference tensors are neither: they have no
        version counter."""
        return {
            position: isinstance(value, torch.nn.Parameter)
            for position, (node, value) in enumerate(zip(self._placeholders, inputs, strict=True))
            if isinstance(value, torch.Tensor)
            and not value.is_inference()
            and "_dynamo_static_input_type" in (node.meta.get("tensor_dict") or {})
        }

    def live_tensors(self, inputs: Sequence[Any], constants: Sequence[int]) -> list[int]:
        """Positions of tensors that are inputs of each call."""
        known = set(constants)
        return [
            position
            for position, value in enumerate(inputs)
            if isinstance(value, torch.Tensor) and position not in known and position not in self._floats
        ]

    def size_of(self, position: int) -> tuple[int, int] | None:
        """The (position, dim) of a tensor whose size this integer input is."""
        example = self._examples[position]
        return self._sizes.get(example.node.expr) if isinstance(example, torch.SymInt) else None

    def free_numbers(self, inputs: Sequence[Any]) -> dict[int, float]:
        """Floats, and integers that are not the size of a tensor: they are constants of a program."""
        integers = {
            position: value
            for position, value in enumerate(inputs)
            if not isinstance(value, torch.Tensor) and self.size_of(position) is None
        }
        return integers | {position: inputs[position].item() for position in self._floats}

    def arguments(self, inputs: Sequence[Any]) -> list[Any]:
        """The inputs, with floats that are known when the graph is traced."""
        return [_Float(each.item()) if at in self._floats else each for at, each in enumerate(inputs)]

    def dynamic_dims(self, position: int, tensor: torch.Tensor) -> dict[int, Any]:
        """torch.export's description of dims that Dynamo marked as dynamic. The default maximum is twice the
        current size, rounded up to a power of two: above it the graph is lowered again."""
        example = self._examples[position]
        dims = {}
        for dim, (known, size) in enumerate(zip(example.shape, tensor.shape, strict=True)):
            if isinstance(known, torch.SymInt):
                range = known.node.shape_env.bound_sympy(known.node.expr)
                most = 1 << (2 * size - 1).bit_length() if range.upper >= int_oo else int(range.upper)
                dims[dim] = Dim.AUTO(min=int(range.lower), max=max(most, size))
        return dims


@dataclass(frozen=True)
class _Float:
    """A Python float, in place of the tensor that Dynamo passes it in."""

    value: float

    def item(self) -> float:
        return self.value


def _is_float(node: torch.fx.Node) -> bool:
    """Whether an input is a Python float, such as a norm's `eps`. With dynamic=True Dynamo passes these as
    tensors, and the graph calls `item()`."""
    argument = node.meta.get("grapharg")
    if argument is None or not argument.pass_arg_as_tensor or argument.is_tensor:
        return False
    return all(user.op == "call_method" and user.target == "item" for user in node.users)


@dataclass(frozen=True)
class View:
    """An output in the memory of an input or of another output: where it is there."""

    is_of_input: bool
    source: int  # position
    size: tuple[int, ...]
    stride: tuple[int, ...]
    offset: int  # from the source's first element

    def of(self, source: torch.Tensor) -> torch.Tensor:
        if (self.size, self.stride, self.offset) == (tuple(source.shape), source.stride(), 0):
            return source
        return source.as_strided(self.size, self.stride, source.storage_offset() + self.offset)


def find_views(inputs: Sequence[Any], outputs: Sequence[Any]) -> tuple[dict[int, View], bool]:
    """Which outputs share memory with inputs or other outputs, by position; and whether there are more that
    cannot be described so: with dynamic dims, or views of a tensor that is no output."""
    found: dict[int, View] = {}
    sources: dict[int, tuple[bool, int, torch.Tensor]] = {}
    for position, tensor in enumerate(inputs):
        if isinstance(tensor, torch.Tensor):
            sources.setdefault(_storage(tensor), (True, position, tensor))
    tensors = {at: each for at, each in enumerate(outputs) if isinstance(each, torch.Tensor)}
    shared = Counter(_storage(tensor) for tensor in tensors.values())
    for position, tensor in tensors.items():
        if shared[_storage(tensor)] > 1 and _is_whole(tensor):
            sources.setdefault(_storage(tensor), (False, position, tensor))
    is_unknown = False
    for position, tensor in tensors.items():
        key = _storage(tensor)
        if key not in sources:
            is_unknown |= shared[key] > 1
        elif sources[key][:2] != (False, position):
            is_of_input, source, base = sources[key]
            numbers = (*tensor.shape, *tensor.stride(), tensor.storage_offset(), base.storage_offset())
            if all(isinstance(number, int) for number in numbers):
                offset = tensor.storage_offset() - base.storage_offset()
                found[position] = View(is_of_input, source, tuple(tensor.shape), tensor.stride(), offset)
            else:
                is_unknown = True
    return found, is_unknown


def _storage(tensor: torch.Tensor) -> int:
    return int(tensor.untyped_storage()._cdata)


def _is_whole(tensor: torch.Tensor) -> bool:
    """Whether a tensor is all of its memory, in order."""
    is_static = all(isinstance(size, int) for size in tensor.shape)
    return is_static and tensor.is_contiguous() and tensor.untyped_storage().nbytes() == tensor.nbytes


def _is_strided(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and (not value.is_contiguous() or bool(value.storage_offset()))


def _check_gradients(inputs: Sequence[Any]) -> None:
    """Raise for an input that requires a gradient, and warn if parameters do, before a slow lowering."""
    if not torch.is_grad_enabled():
        return
    wanted = [each for each in inputs if isinstance(each, torch.Tensor) and each.requires_grad]
    if any(not isinstance(each, torch.nn.Parameter) for each in wanted):
        raise InputError(
            "an input requires grad; Pteron only runs inference: use torch.no_grad() or detach()"
        )
    if wanted:
        warnings.warn(
            "Pteron only runs inference: the outputs have no gradient; call the module under torch.no_grad()",
            stacklevel=3,
        )


def buffer_name(position: int) -> str:
    return f"constant_{position}"


def buffer_position(name: str) -> int:
    return int(name.removeprefix("constant_"))


def make_module(
    capture: Capture, inputs: Sequence[Any], constants: Sequence[int], live: Sequence[int]
) -> torch.nn.Module:
    """The graph as a module whose inputs are the live tensors: constants are buffers, sizes are read from the
    tensors, other numbers are constants."""
    sizes = {
        position: size
        for position in range(len(inputs))
        if (size := capture.size_of(position)) is not None and size[0] in live
    }

    known = capture.arguments(inputs)

    class Captured(torch.nn.Module):  # type: ignore[misc]  # torch is untyped here
        def __init__(self) -> None:
            super().__init__()
            self.graph = capture.graph_module
            for position in constants:
                self.register_buffer(buffer_name(position), inputs[position].detach())

        def forward(self, *tensors: torch.Tensor) -> Any:
            arguments = list(known)
            for position in constants:
                arguments[position] = getattr(self, buffer_name(position))
            for position, tensor in zip(live, tensors, strict=True):
                arguments[position] = tensor
            for position, (tensor_position, dim) in sizes.items():
                arguments[position] = arguments[tensor_position].shape[dim]
            return self.graph(*arguments)

    return Captured()
