"""The inputs and outputs of a method for users: names, element types, maximum shapes, which dims are dynamic;
and tables of them for notebooks."""

from __future__ import annotations

import json
import operator
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from pteron.dtypes import DType
from pteron.errors import InputError, PteronError
from pteron.format.records import DelegateCall, MethodRecord, PortRecord, TensorRecord
from pteron.graph import Shape, SymInt, Tensor
from pteron.plan import Compiled

_TRIED_MAX = 200_000  # dims to try, times nodes to plan for each


@dataclass(frozen=True, slots=True)
class ValueSpec:
    """An input or output of a method. A tensor has a dtype, a maximum shape and, for each dim, whether it is
    dynamic. Any other input has its value at export, if the program stores it."""

    kind: str  # "tensor", "int", "float", "bool", "str" or "none"
    dtype: DType | None = None
    shape_max: Shape = ()
    dynamic: tuple[bool, ...] = ()
    value: object = None
    name: str = ""  # the program's; an input without one has its position, as input_0
    shape_min: Shape = ()  # of a tensor, if the program stores it

    @property
    def shape(self) -> Shape:
        """The maximum shape: `np.empty(spec.shape, spec.dtype)` is a valid input."""
        return self.shape_max

    def misfit(self, shape: Shape) -> str | None:
        """The error message for a shape that does not fit; None if it fits."""
        if len(shape) != len(self.shape_max):
            return f"expected rank {len(self.shape_max)}, {self}, got {list(shape)}"
        smallest = self.shape_min or (0,) * len(shape)
        bounds = zip(shape, smallest, self.shape_max, self.dynamic, strict=True)
        for dim, (size, least, most, free) in enumerate(bounds):
            if size > most or size < least or (size != most and not free):
                expected = (f"from {least} to {most}" if least else f"at most {most}") if free else str(most)
                return f"dim {dim} is {size}, expected {expected}: the input is {self}, got {list(shape)}"
        return None

    def _repr_html_(self) -> str:
        from html import escape  # here: only notebooks need it

        return f"<code>{escape(f'{self.name}: {self}' if self.name else str(self))}</code>"

    def __str__(self) -> str:
        if self.kind != "tensor":
            return self.kind
        smallest = self.shape_min or (0,) * len(self.shape_max)
        bounds = zip(smallest, self.shape_max, self.dynamic, strict=True)
        dims = (
            str(most) if not free else f"{least}..{most}" if least > 1 else f"≤{most}"
            for least, most, free in bounds
        )
        return f"{self.dtype}[{', '.join(dims)}]"


def describe(
    record: MethodRecord, delegates: Sequence[Compiled | None]
) -> tuple[tuple[ValueSpec, ...], tuple[ValueSpec, ...]]:
    """The specs of a method's inputs and outputs; a delegate that cannot be planned is None."""
    integers = _live_integers(record, delegates)
    if record.input_ports:
        return (
            tuple(map(partial(_stored_spec, record, integers), record.inputs, record.input_ports)),
            tuple(map(partial(_stored_spec, record, integers), record.outputs, record.output_ports)),
        )
    free = _free_dims(record, delegates)
    given = (_spec(record, id, free, integers) for id in record.inputs)
    return (
        tuple(replace(spec, name=name) for spec, name in zip(given, input_names(record), strict=True)),
        tuple(_spec(record, id, free, integers) for id in record.outputs),
    )


def _stored_spec(record: MethodRecord, integers: Mapping[int, int], id: int, port: PortRecord) -> ValueSpec:
    """The spec of a value whose name and least sizes the program stores."""
    spec = _spec(record, id, {}, integers)
    least = spec.shape_max if port.shape_min is None else port.shape_min
    dynamic = tuple(map(operator.lt, least, spec.shape_max))
    return replace(spec, name=port.name, dynamic=dynamic, shape_min=least)


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
    """The dynamic dims, by value id, of the inputs and outputs of delegates.

    A file only says whether a tensor has a dynamic dim. Planning a delegate with one size reduced shows
    whether that dim is dynamic; an input of several delegates must be dynamic in all of them. In graphs that
    are too large for this test, every dim of a dynamic tensor counts as dynamic.
    """
    free: dict[int, set[int]] = {}
    for call, compiled in _delegate_calls(record, delegates):
        for id, dims in _free_dims_of_call(record, call, compiled).items():
            free[id] = free[id] & dims if id in free else dims
    return free


def _live_integers(record: MethodRecord, delegates: Sequence[Compiled | None]) -> dict[int, int]:
    """The live integers that delegates read, by value id, with their values at export."""
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
        return {}  # the test would take too long
    at_most = _shapes(compiled, shapes_max)
    if at_most is None or len(output_ids) != len(outputs):
        return {}  # unknown
    free: dict[int, set[int]] = {id: set() for id in call.args}
    for output, output_id in zip(outputs, output_ids, strict=True):
        if isinstance(output, Tensor):  # sizes that depend on live integers, which are 0 here
            free[output_id] |= _unequal(output.shape_max, at_most[output.id])
    for tensor, input_id in zip(inputs, input_ids, strict=True):
        value = record.values[input_id]
        may_vary = isinstance(value, TensorRecord) and value.dynamism != "static"
        if not isinstance(tensor, Tensor) or not may_vary:
            continue
        for dim, size in enumerate(tensor.shape_max):
            below = partial(_shapes_below, compiled, shapes_max, tensor, dim)
            found = below(size - 1) if size > 1 else None
            if found is None:
                continue
            free[input_id].add(dim)
            # After a stride or pool, sizes that differ by one may give the same output.
            for shapes in filter(None, (found, below(size * 3 // 4), below(size // 2))):
                for output, output_id in zip(outputs, output_ids, strict=True):
                    if isinstance(output, Tensor):
                        free[output_id] |= _unequal(at_most[output.id], shapes[output.id])
    return free


def _unequal(a: Shape, b: Shape) -> set[int]:
    return {dim for dim, (left, right) in enumerate(zip(a, b, strict=True)) if left != right}


def _shapes_below(
    compiled: Compiled, shapes_max: Mapping[int, Shape], tensor: Tensor, dim: int, smaller: int
) -> Mapping[int, Shape] | None:
    """Every tensor's shape if one dim of an input is smaller; None if that is not possible.

    Another input may depend on that dim, so the second attempt reduces all dims of equal size.
    """
    size = tensor.shape_max[dim]
    shrunk = (*tensor.shape_max[:dim], smaller, *tensor.shape_max[dim + 1 :])
    found = _shapes(compiled, {**shapes_max, tensor.id: shrunk})
    if found is not None:
        return found
    tied = {id: tuple(smaller if s == size else s for s in shape) for id, shape in shapes_max.items()}
    return _shapes(compiled, tied)


def _shapes(compiled: Compiled, shapes: Mapping[int, Shape]) -> Mapping[int, Shape] | None:
    """Every tensor's shape for these shapes of inputs; None if they do not fit."""
    values = {source.symbol: 0 for source in compiled.executable.sources}
    live = tuple(shapes.get(value.id) for value in compiled.prepared.graph.inputs)
    try:
        found = compiled.shapes(live, values)
    except PteronError:
        return None
    outputs = (value for value in compiled.prepared.graph.outputs if isinstance(value, Tensor))
    return {**{tensor.id: tensor.shape_max for tensor in outputs}, **found}


def table(title: str, head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """An HTML table with a title; all texts are escaped."""
    from html import escape

    def line(tag: str, row: Sequence[str]) -> str:
        # Notebooks align cells to the right, as numbers are.
        cells = (f'<{tag} style="text-align:left">{escape(text)}</{tag}>' for text in row)
        return f"<tr>{''.join(cells)}</tr>"

    lines = "".join(line("td", row) for row in rows)
    body = f"<thead>{line('th', head)}</thead><tbody>{lines}</tbody>"
    return f"<div><b>{escape(title)}</b><table>{body}</table></div>"


def spec_rows(inputs: Iterable[ValueSpec], outputs: Iterable[ValueSpec]) -> list[tuple[str, str, str]]:
    """A row for each input and output: side, name, type."""
    given = [("input", spec.name or str(place), str(spec)) for place, spec in enumerate(inputs)]
    return given + [("output", spec.name or str(place), str(spec)) for place, spec in enumerate(outputs)]


_MISSING = object()


def input_names(record: MethodRecord) -> tuple[str, ...]:
    """A unique name for each input. Exporters keep names of keyword arguments and keys of dicts; an input
    without such a name is `input_0` by its position. `pteron.compile` stores all names."""
    if record.input_ports:
        return tuple(port.name for port in record.input_ports)
    plain = [f"input_{position}" for position in range(len(record.inputs))]
    try:
        _, tree = json.loads(record.input_tree)  # the version and the arguments
        found = list(_leaves(tree))
    except (ValueError, TypeError, LookupError, AttributeError, RecursionError):
        return tuple(plain)
    if len(found) != len(plain):
        return tuple(plain)
    times = Counter(found)
    taken = set(plain)
    return tuple(
        name if name and times[name] == 1 and name not in taken else position
        for name, position in zip(found, plain, strict=True)
    )


def _leaves(tree: Any) -> Iterator[str]:
    """The name of each leaf: keys from the outside in, joined by dots; empty for a positional argument."""
    by_position, by_name = tree["children_spec"]
    for argument in by_position["children_spec"]:
        yield from (".".join(path) for path in _paths(argument))
    yield from (".".join(path) for path in _paths(by_name))


def _paths(node: Any) -> Iterator[list[str]]:
    if node["type"] is None:
        yield []
        return
    children = node["children_spec"]
    context = json.loads(node["context"]) if node["type"].endswith("dict") else None
    keys = context if isinstance(context, list) else range(len(children))
    for key, child in zip(keys, children, strict=True):
        yield from ([str(key), *path] for path in _paths(child))


def arranged(
    where: str, names: Sequence[str], inputs: Sequence[object], named: Mapping[str, object]
) -> list[object]:
    """Inputs in their order: those given by position come first, others by name."""
    if len(inputs) > len(names):
        raise InputError(f"{where} takes {len(names)} inputs ({', '.join(names)}), got {len(inputs)}")
    found = [*inputs, *[_MISSING] * (len(names) - len(inputs))]
    places = {f"input_{position}": position for position in range(len(names))}
    places |= {name: position for position, name in enumerate(names)}
    for name, value in named.items():
        if name not in places:
            raise InputError(f"{where} has no input {name!r}; it has {', '.join(names) or 'none'}")
        if found[places[name]] is not _MISSING:
            raise InputError(f"{where}: input {name!r} is given twice")
        found[places[name]] = value
    missing = [name for name, value in zip(names, found, strict=True) if value is _MISSING]
    if missing:
        lacking = f"got {len(names) - len(missing)}: {', '.join(missing)} missing"
        raise InputError(f"{where} takes {len(names)} inputs ({', '.join(names)}), {lacking}")
    return found
