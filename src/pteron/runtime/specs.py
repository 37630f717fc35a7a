"""The inputs and outputs of a method for users: names, element types, maximum shapes, which dims are dynamic;
and tables of them for notebooks."""

from __future__ import annotations

import json
import operator
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from pteron.dtypes import DType
from pteron.errors import InputError, PteronError
from pteron.format.records import DelegateCall, MethodRecord, PortRecord, TensorRecord
from pteron.graph import Shape, SymInt
from pteron.plan import Compiled
from pteron.runtime.dynamic_dims import DimRange, Ranges, find_dynamic_dims


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
    shape_min: Shape = ()  # of a tensor; 0 where no minimum is known
    shape_step: Shape = ()  # of a tensor: each size is the maximum less a multiple of its step
    symbols: tuple[str, ...] = ()
    """For each dim, "" or a symbol. Dims of one symbol are as many steps below their maximum."""

    @property
    def shape(self) -> Shape:
        """The maximum shape: `np.empty(spec.shape, spec.dtype)` is a valid input."""
        return self.shape_max

    @property
    def shape_least(self) -> Shape:
        """The smallest shape, where dims without a known minimum are as small as their steps allow."""
        return tuple(
            (least or (most - 1) % step + 1) if free else most for least, most, step, free in self._bounds
        )

    @property
    def _bounds(self) -> Iterator[tuple[int, int, int, bool]]:
        rank = len(self.shape_max)
        return zip(
            self.shape_min or (0,) * rank,
            self.shape_max,
            self.shape_step or (1,) * rank,
            self.dynamic,
            strict=True,
        )

    def misfit(self, shape: Shape) -> str | None:
        """The error message for a shape that does not fit; None if it fits."""
        if len(shape) != len(self.shape_max):
            return f"expected rank {len(self.shape_max)}, {self}, got {list(shape)}"
        for dim, size in enumerate(shape):
            expected = self.misfit_of_dim(dim, size)
            if expected:
                return f"dim {dim} is {size}, expected {expected}: the input is {self}, got {list(shape)}"
        return None

    def misfit_of_dim(self, dim: int, size: int) -> str | None:
        """What a dim may be, if it may not have this size."""
        least, most, step, free = list(self._bounds)[dim]
        if size == most or (free and least <= size <= most and (most - size) % step == 0):
            return None
        if not free:
            return str(most)
        bounds = f"from {least} to {most}" if least else f"at most {most}"
        return bounds if step == 1 else f"{bounds} in steps of {step}"

    def _repr_html_(self) -> str:
        from html import escape  # here: only notebooks need it

        return f"<code>{escape(f'{self.name}: {self}' if self.name else str(self))}</code>"

    def __str__(self) -> str:
        if self.kind != "tensor":
            return self.kind
        dims = (
            str(most)
            if not free
            else (f"{least}..{most}" if least > 1 else f"≤{most}") + (f" by {step}" if step > 1 else "")
            for least, most, step, free in self._bounds
        )
        return f"{self.dtype}[{', '.join(dims)}]"


def dependent_dims(
    specs: Sequence[ValueSpec], input: int, dim: int, size: int
) -> Iterator[tuple[int, int, int]]:
    """Input, dim and size of the dims that depend on one, if that has a size."""
    spec = specs[input]
    if not spec.symbols or not spec.symbols[dim]:
        return
    steps = (spec.shape_max[dim] - size) // spec.shape_step[dim]
    for index, other in enumerate(specs):
        for at, symbol in enumerate(other.symbols):
            if symbol == spec.symbols[dim] and (index, at) != (input, dim):
                yield index, at, other.shape_max[at] - steps * other.shape_step[at]


def misfit_between(specs: Sequence[ValueSpec], shapes: Sequence[Shape | None]) -> str | None:
    """The error message for shapes of inputs that fit alone, but not together; None if they do."""
    for input, shape in enumerate(shapes):
        for dim, size in enumerate(shape or ()):
            for other, at, expected in dependent_dims(specs, input, dim, size):
                found = shapes[other]
                if found is not None and found[at] != expected:
                    return (
                        f"dim {dim} of input {input} is {size}; dim {at} of input {other} depends on it and "
                        f"must be {expected}, got {found[at]}"
                    )
    return None


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
    found = _dynamic_dims(record, delegates)

    def named(ids: Sequence[int], names: Sequence[str]) -> tuple[ValueSpec, ...]:
        pairs = zip(ids, names, strict=True)
        return tuple(replace(_spec(record, id, found, integers), name=name) for id, name in pairs)

    return named(record.inputs, input_names(record)), named(record.outputs, _output_names(record))


def _dynamic_dims(record: MethodRecord, delegates: Sequence[Compiled | None]) -> Ranges:
    """The dynamic dims of inputs and outputs, by value id. If dry runs are not possible, every dim of a
    dynamic tensor counts as dynamic."""
    tensors = (record.values[id] for id in (*record.inputs, *record.outputs))
    if all(not isinstance(value, TensorRecord) or value.dynamism == "static" for value in tensors):
        return {}
    from pteron.runtime.dry_run import DryRun  # here: static methods need no host operators

    planned = [compiled for compiled in delegates if compiled is not None]
    try:
        return find_dynamic_dims(DryRun(record, planned)) if len(planned) == len(delegates) else {}
    except PteronError:  # an operator is missing here
        return {}


def _stored_spec(record: MethodRecord, integers: Mapping[int, int], id: int, port: PortRecord) -> ValueSpec:
    """The spec of a value whose name and sizes the program stores."""
    spec = _spec(record, id, {}, integers)
    least = spec.shape_max if port.shape_min is None else port.shape_min
    dynamic = tuple(map(operator.lt, least, spec.shape_max))
    step = port.shape_step or (1,) * len(least)
    return replace(
        spec, name=port.name, dynamic=dynamic, shape_min=least, shape_step=step, symbols=port.symbols
    )


def _spec(record: MethodRecord, id: int, found: Ranges, integers: Mapping[int, int]) -> ValueSpec:
    value = record.values[id]
    if value is None and id in integers:
        return ValueSpec("int", value=integers[id])
    if isinstance(value, TensorRecord):
        may_vary = range(len(value.sizes)) if value.dynamism != "static" else ()
        free = found.get(id, {dim: DimRange() for dim in may_vary if value.sizes[dim] > 1})
        ranges = [free.get(dim, DimRange(size)) for dim, size in enumerate(value.sizes)]
        least, step, symbols = zip(*ranges, strict=True) if ranges else ((), (), ())
        dynamic = tuple(dim in free for dim in range(len(ranges)))
        return ValueSpec("tensor", value.dtype, value.sizes, dynamic, None, "", least, step, symbols)
    kind = "none" if value is None else type(value).__name__
    return ValueSpec(kind, value=value)


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

    def arguments(tree: Any) -> list[Any]:
        by_position, by_name = tree["children_spec"]
        return [*by_position["children_spec"], by_name]

    return _tree_names(record.input_tree, arguments, plain)


def _output_names(record: MethodRecord) -> tuple[str, ...]:
    """The key of each output of a module that returns a dict; others have no names."""

    def results(tree: Any) -> list[Any]:
        is_sequence = tree["type"] in ("builtins.tuple", "builtins.list")
        return list(tree["children_spec"]) if is_sequence else [tree]

    return _tree_names(record.output_tree, results, [""] * len(record.outputs))


def _tree_names(text: str, parts: Callable[[Any], list[Any]], plain: Sequence[str]) -> tuple[str, ...]:
    """The name of each leaf of a pytree's parts: keys from the outside in, joined by dots. A leaf without
    keys, or with another's name, has the plain one."""
    try:
        _, tree = json.loads(text)  # the version and the tree
        found = [".".join(path) for part in parts(tree) for path in _paths(part)]
    except (ValueError, TypeError, LookupError, AttributeError, RecursionError):
        return tuple(plain)
    if len(found) != len(plain):
        return tuple(plain)
    times, taken = Counter(found), set(plain)
    return tuple(
        name if name and times[name] == 1 and name not in taken else position
        for name, position in zip(found, plain, strict=True)
    )


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
