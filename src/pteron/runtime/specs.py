"""What a method takes and gives, for people: element types, maximum shapes, which dims may vary."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from pteron.dtypes import DType
from pteron.errors import PteronError
from pteron.format import DelegateCall, EValue, MethodRecord, TensorRecord
from pteron.graph import Shape, SymInt, Tensor
from pteron.plan import Compiled
from pteron.runtime.names import input_names

_TRIED_MAX = 200_000  # dims that are tried, times nodes that are planned for each


@dataclass(frozen=True, slots=True)
class ValueSpec:
    """An input or output. A tensor has a dtype, a maximum shape and, per dim, whether it is dynamic;
    anything else has the value it had at export, where the program keeps one."""

    kind: str  # "tensor", "int", "float", "bool", "str" or "none"
    dtype: DType | None = None
    shape_max: Shape = ()
    dynamic: tuple[bool, ...] = ()
    value: object = None
    name: str = ""  # of an input: the program's own, or its position, as input_0

    @property
    def shape(self) -> Shape:
        """The maximum shape: `np.empty(spec.shape, spec.dtype)` is an array that the method takes."""
        return self.shape_max

    def misfit(self, shape: Shape) -> str | None:
        """Which dim of a shape cannot be what it is, in a sentence; None where all can."""
        if len(shape) != len(self.shape_max):
            return f"expected rank {len(self.shape_max)}, {self}, got {list(shape)}"
        for dim, (size, most, free) in enumerate(zip(shape, self.shape_max, self.dynamic, strict=True)):
            if size > most or (size != most and not free):
                expected = f"at most {most}" if free else str(most)
                return f"dim {dim} is {size}, expected {expected}: the input is {self}, got {list(shape)}"
        return None

    def _repr_html_(self) -> str:
        from html import escape  # here: only notebooks ask

        return f"<code>{escape(f'{self.name}: {self}' if self.name else str(self))}</code>"

    def __str__(self) -> str:
        if self.kind != "tensor":
            return self.kind
        dims = (
            f"≤{size}" if free else str(size) for size, free in zip(self.shape_max, self.dynamic, strict=True)
        )
        return f"{self.dtype}[{', '.join(dims)}]"


def describe(
    record: MethodRecord, delegates: Sequence[Compiled | None]
) -> tuple[tuple[ValueSpec, ...], tuple[ValueSpec, ...]]:
    """The specs of a method's inputs and outputs; a delegate that cannot be planned is None."""
    free, integers = _free_dims(record, delegates), _live_integers(record, delegates)
    given = (_spec(record, id, free, integers) for id in record.inputs)
    return (
        tuple(replace(spec, name=name) for spec, name in zip(given, input_names(record), strict=True)),
        tuple(_spec(record, id, free, integers) for id in record.outputs),
    )


def _spec(
    record: MethodRecord, id: int, free: Mapping[int, set[int]], integers: Mapping[int, int]
) -> ValueSpec:
    value = record.values[id]
    if value is None and id in integers:
        return ValueSpec("int", value=integers[id])
    if isinstance(value, TensorRecord):
        may_vary = value.dynamism != "static"
        dynamic = tuple(
            may_vary and size > 1 and (id not in free or dim in free[id])
            for dim, size in enumerate(value.sizes)
        )
        return ValueSpec("tensor", value.dtype, value.sizes, dynamic)
    kind = "none" if value is None else type(value).__name__
    return ValueSpec(kind, value=value)


def _free_dims(record: MethodRecord, delegates: Sequence[Compiled | None]) -> dict[int, set[int]]:
    """Which dims can vary, by value id, of the values that delegates take and give.

    A file only says that some dim of a tensor does. Planning a delegate with one size made smaller shows
    whether that size is free. What several delegates take is as free as the strictest of them lets it be.
    Of graphs with too many nodes and inputs for that, every dim counts as free that the file says may vary.
    """
    free: dict[int, set[int]] = {}
    for call, compiled in _delegate_calls(record, delegates):
        for id, dims in _free_dims_of_call(record, call, compiled).items():
            free[id] = free[id] & dims if id in free else dims
    return free


def _live_integers(record: MethodRecord, delegates: Sequence[Compiled | None]) -> dict[int, int]:
    """Values that delegates take as live integers, and what they were at export: methods do not say."""
    return {
        id: value.initial
        for call, compiled in _delegate_calls(record, delegates)
        for id, value in zip(call.args, compiled.prepared.graph.inputs, strict=False)
        if isinstance(value, SymInt)
    }


def _delegate_calls(
    record: MethodRecord, delegates: Sequence[Compiled | None]
) -> Iterator[tuple[DelegateCall, Compiled]]:
    for call in record.instructions:
        if isinstance(call, DelegateCall):
            compiled = delegates[call.delegate]
            if compiled is not None:
                yield call, compiled


def _free_dims_of_call(record: MethodRecord, call: DelegateCall, compiled: Compiled) -> dict[int, set[int]]:
    inputs, outputs = compiled.prepared.graph.inputs, compiled.prepared.graph.outputs
    input_ids, output_ids = call.args[: len(inputs)], call.args[len(inputs) :]
    shapes_max = {tensor.id: tensor.shape_max for tensor in inputs if isinstance(tensor, Tensor)}
    tried = sum(size > 1 for shape in shapes_max.values() for size in shape)
    if tried * len(compiled.prepared.graph.nodes) > _TRIED_MAX:
        return {}  # it would take too long to know
    at_most = _shapes(compiled, shapes_max)
    if at_most is None or len(output_ids) != len(outputs):
        return {}  # nothing is known
    free: dict[int, set[int]] = {id: set() for id in call.args}
    for output, output_id in zip(outputs, output_ids, strict=True):
        if isinstance(output, Tensor):  # where live integers, here 0, shape an output, it varies with them
            free[output_id] |= _unequal(output.shape_max, at_most[output.id])
    for tensor, input_id in zip(inputs, input_ids, strict=True):
        if not isinstance(tensor, Tensor) or not _may_vary(record.values[input_id]):
            continue
        for dim, size in enumerate(tensor.shape_max):
            found = _shapes_below(compiled, shapes_max, tensor, dim) if size > 1 else None
            if found is None:
                continue
            free[input_id].add(dim)
            for output, output_id in zip(outputs, output_ids, strict=True):
                if isinstance(output, Tensor):
                    free[output_id] |= _unequal(at_most[output.id], found[output.id])
    return free


def _unequal(a: Shape, b: Shape) -> set[int]:
    return {dim for dim, (left, right) in enumerate(zip(a, b, strict=True)) if left != right}


def _may_vary(value: EValue) -> bool:
    return isinstance(value, TensorRecord) and value.dynamism != "static"


def _shapes_below(
    compiled: Compiled, shapes_max: Mapping[int, Shape], tensor: Tensor, dim: int
) -> Mapping[int, Shape] | None:
    """Every tensor's shape where one dim of an input is one smaller, or None where it cannot be.

    Another input may be tied to that dim, so its equals everywhere are tried together before giving up.
    """
    size = tensor.shape_max[dim]
    shrunk = (*tensor.shape_max[:dim], size - 1, *tensor.shape_max[dim + 1 :])
    found = _shapes(compiled, {**shapes_max, tensor.id: shrunk})
    if found is not None:
        return found
    tied = {id: tuple(size - 1 if s == size else s for s in shape) for id, shape in shapes_max.items()}
    return _shapes(compiled, tied)


def _shapes(compiled: Compiled, shapes: Mapping[int, Shape]) -> Mapping[int, Shape] | None:
    """Every tensor's shape where the inputs have these, or None where they cannot."""
    values = {source.symbol: 0 for source in compiled.executable.sources}
    live = tuple(shapes.get(value.id) for value in compiled.prepared.graph.inputs)
    try:
        found = compiled.shapes(live, values)
    except PteronError:
        return None
    outputs = (value for value in compiled.prepared.graph.outputs if isinstance(value, Tensor))
    return {**{tensor.id: tensor.shape_max for tensor in outputs}, **found}
