"""The inputs and outputs of an exported program as pytrees: flattens calls and checks their inputs. A program
stores its signature as metadata."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from pteron.errors import DtypeError, FormatError, InputError, PteronError, ShapeError
from pteron.export.dims import DimNames, evaluate
from pteron.export.trees import difference, from_json, leaf_names, to_json

if TYPE_CHECKING:
    import torch
    from torch.export import ExportedProgram
    from torch.utils._pytree import TreeSpec

_SHAPES_KEPT = 1024


@dataclass(frozen=True, slots=True)
class Leaf:
    """One input or output: a tensor, whose dims are integers or expressions, or a constant that the program
    was exported with."""

    name: str
    dtype: torch.dtype | None = None
    dims: tuple[int | str, ...] = ()
    shape_min: tuple[int, ...] = ()
    is_constant: bool = False
    value: Any = None  # of a constant


@dataclass(frozen=True)
class Trees:
    """The structure of a call: a tuple of positional and a dict of keyword arguments; and of its result."""

    inputs: TreeSpec
    outputs: TreeSpec


class Signature:
    def __init__(
        self,
        arguments: Sequence[str],
        leaves: Sequence[Leaf],
        outputs: Sequence[Leaf],
        ranges: Mapping[str, tuple[int, int]],
        trees: Trees,
    ) -> None:
        self.leaves = list(leaves)
        self.outputs = list(outputs)
        self.ranges = dict(ranges)  # expressions of dims -> their least and largest value
        self._arguments = list(arguments)  # names: positional arguments, then keyword arguments
        self._trees = trees
        self._positional = trees.inputs.child(0).num_children
        self._fitting: set[tuple[Any, ...]] = set()

    @classmethod
    def of(cls, exported: ExportedProgram) -> Signature:
        assert exported.call_spec.in_spec is not None
        assert exported.call_spec.out_spec is not None
        trees = Trees(exported.call_spec.in_spec, exported.call_spec.out_spec)
        names = dim_names(exported)
        return cls(
            _arguments(exported, trees.inputs),
            input_leaves(exported, names),
            _output_leaves(exported, names, trees.outputs),
            dim_ranges(exported, names),
            trees,
        )

    @classmethod
    def from_metadata(cls, metadata: Mapping[str, Any]) -> Signature:
        """The signature in a program's metadata."""
        if "in_tree" not in metadata:
            why = metadata.get("no_trees", "pteron.compile did not write this program")
            raise InputError(f"the structure of inputs and outputs is not stored: {why}; use pteron.load")
        try:
            return cls(
                [str(name) for name in metadata["arguments"]],
                [_leaf_from_json(leaf) for leaf in metadata["inputs"]],
                [_leaf_from_json(leaf) for leaf in metadata["outputs"]],
                {str(dim): (int(least), int(most)) for dim, (least, most) in metadata["dims"].items()},
                Trees(
                    from_json(metadata["in_tree"], is_input=True),
                    from_json(metadata["out_tree"], is_input=False),
                ),
            )
        except PteronError:
            raise
        except Exception as error:  # a file may contain anything
            raise FormatError(f"the stored signature is invalid ({type(error).__name__}: {error})") from error

    def metadata(self) -> dict[str, Any]:
        """The signature as JSON, for `from_metadata`."""
        try:
            trees = {"in_tree": to_json(self._trees.inputs), "out_tree": to_json(self._trees.outputs)}
        except (TypeError, ValueError) as error:  # a class with any context
            trees = {"no_trees": str(error)}
        return {
            "arguments": self._arguments,
            "inputs": list(map(_leaf_json, self.leaves)),
            "outputs": list(map(_leaf_json, self.outputs)),
            "dims": {dim: list(range) for dim, range in self.ranges.items()},
            **trees,
        }

    def flatten(self, args: Sequence[object], kwargs: Mapping[str, object]) -> list[Any]:
        """The leaves of a call, unchecked."""
        from torch.utils._pytree import tree_flatten

        leaves, spec = tree_flatten(self._bind(args, kwargs))
        if spec != self._trees.inputs:
            raise InputError(f"the call differs from the example: {self._difference(spec)}")
        return list(leaves)

    def check(self, given: Sequence[object]) -> list[Any]:
        """The leaves as torch tensors and constants, checked."""
        leaves = [_as_torch(leaf, value) for leaf, value in zip(self.leaves, given, strict=True)]
        for leaf, value in zip(self.leaves, leaves, strict=True):
            _check(leaf, value)
        self._check_shapes(leaves)
        return leaves

    def unflatten(self, outputs: Sequence[object]) -> Any:
        """The outputs in the module's structure."""
        from torch.utils._pytree import tree_unflatten

        pairs = zip(outputs, self.outputs, strict=True)
        values = [leaf.value if leaf.is_constant else value for value, leaf in pairs]
        return tree_unflatten(values, self._trees.outputs)

    def fits(self, leaves: Sequence[Any]) -> bool:
        """Whether the shapes of inputs are valid."""
        try:
            self._check_shapes(leaves)
        except ShapeError:
            return False
        return True

    def _bind(
        self, args: Sequence[object], kwargs: Mapping[str, object]
    ) -> tuple[tuple[object, ...], dict[str, object]]:
        """The arguments as the example had them: a positional argument may be given by name, and keyword
        arguments in any order."""
        names, count = self._arguments, self._positional
        if len(args) > count:
            raise InputError(
                f"expected {count} positional arguments ({', '.join(names[:count])}), got {len(args)};"
                " pass the others by name, and only those of the example"
            )
        given = dict(zip(names, args, strict=False))
        if twice := given.keys() & kwargs.keys():
            raise InputError(f"{', '.join(sorted(twice))} is given by position and by name")
        given.update(kwargs)
        missing, unknown = [n for n in names if n not in given], [n for n in given if n not in names]
        if missing or unknown:
            problems = [f"missing: {', '.join(missing)}"] if missing else []
            problems += [f"not in the example: {', '.join(unknown)}"] if unknown else []
            raise InputError(f"expected the arguments {', '.join(names) or 'none'}; {'; '.join(problems)}")
        return tuple(given[n] for n in names[:count]), {n: given[n] for n in names[count:]}

    def _difference(self, found: TreeSpec) -> str | None:
        expected = [each for side in self._trees.inputs.children() for each in side.children()]
        given = [each for side in found.children() for each in side.children()]
        problems = map(difference, expected, given, self._arguments)
        return next(problem for problem in problems if problem is not None)

    def _check_shapes(self, leaves: Sequence[Any]) -> None:
        each = zip(self.leaves, leaves, strict=True)
        shapes = tuple(tuple(value.shape) if leaf.dtype else () for leaf, value in each)
        if shapes in self._fitting:
            return
        sizes: dict[str, int] = {}
        places: dict[str, str] = {}
        for leaf, shape in zip(self.leaves, shapes, strict=True):
            self._check_shape(leaf, shape, sizes, places)
        for leaf, shape in zip(self.leaves, shapes, strict=True):
            _check_expressions(leaf, shape, sizes)
        if len(self._fitting) >= _SHAPES_KEPT:
            self._fitting.clear()
        self._fitting.add(shapes)

    def _check_shape(
        self, leaf: Leaf, shape: Sequence[int], sizes: dict[str, int], places: dict[str, str]
    ) -> None:
        """Check ranks, static dims and ranges; collect the size of each named dim."""
        if len(shape) != len(leaf.dims):
            raise ShapeError(f"{leaf.name}: expected {_shown(leaf.dims)}, got {list(shape)}")
        for position, (dim, size) in enumerate(zip(leaf.dims, shape, strict=True)):
            where = _place(leaf, position, shape)
            if isinstance(dim, int):
                if dim != size:
                    raise ShapeError(f"{where} must be {dim}")
                continue
            least, most = self.ranges.get(dim, (size, size))
            if not least <= size <= most:
                raise ShapeError(f"{where} must be from {least} to {most}")
            if dim.isidentifier() and sizes.setdefault(dim, size) != size:
                raise ShapeError(f"{where} must be {sizes[dim]}, as {places[dim]}")
            places.setdefault(dim, f"dim {position} of {leaf.name}")


def _check_expressions(leaf: Leaf, shape: Sequence[int], sizes: Mapping[str, int]) -> None:
    for position, (dim, size) in enumerate(zip(leaf.dims, shape, strict=True)):
        if isinstance(dim, str) and evaluate(dim, sizes) not in (size, None):
            raise ShapeError(f"{_place(leaf, position, shape)} must be {dim} = {evaluate(dim, sizes)}")


def _place(leaf: Leaf, position: int, shape: Sequence[int]) -> str:
    dim = leaf.dims[position]
    is_named = isinstance(dim, str) and dim.isidentifier() and dim != f"{leaf.name}_dim_{position}"
    return f"{leaf.name}: dim {position}{f' ({dim})' if is_named else ''} of {list(shape)}"


def _shown(dims: Sequence[Any]) -> str:
    return f"[{', '.join(map(str, dims))}]"


# From an exported program -----------------------------------------------------------------------


def dim_names(exported: ExportedProgram) -> DimNames:
    return DimNames({node.name: node.meta.get("val") for node, _ in _user_inputs(exported)})


def dim_ranges(exported: ExportedProgram, names: DimNames) -> dict[str, tuple[int, int]]:
    """The least and largest value of each dynamic dim of inputs. Each needs a maximum: memory is planned for
    it."""
    from torch.fx.experimental.symbolic_shapes import free_unbacked_symbols
    from torch.utils._sympy.numbers import int_oo

    values = (node.meta.get("val") for node, _ in _user_inputs(exported))
    sizes = [size for value in values for size in getattr(value, "shape", (value,))]
    symbols = {symbol for size in sizes if hasattr(size, "node") for symbol in size.node.expr.free_symbols}
    ranges = {}
    for expression, range in exported.range_constraints.items():
        # Not those that depend on values, nor those of a tensor behind an example that is a view of it.
        if free_unbacked_symbols(expression) or not expression.free_symbols & symbols:
            continue
        dim = names.expression(expression)
        if range.upper >= int_oo:
            raise InputError(f"dynamic dim {dim} has no maximum; give one: torch.export.Dim('name', max=512)")
        if isinstance(dim, str):
            ranges[dim] = int(range.lower), int(range.upper)
    return ranges


def input_leaves(exported: ExportedProgram, names: DimNames) -> list[Leaf]:
    """The caller's inputs, without parameters, buffers and constants."""
    ranges = exported.range_constraints
    return [
        _leaf(node.name, spec.arg, node.meta.get("val"), names, ranges)
        for node, spec in _user_inputs(exported)
    ]


def _user_inputs(exported: ExportedProgram) -> list[tuple[Any, Any]]:
    from torch.export.graph_signature import InputKind

    placeholders = (node for node in exported.graph.nodes if node.op == "placeholder")
    pairs = zip(placeholders, exported.graph_signature.input_specs, strict=True)
    return [(node, spec) for node, spec in pairs if spec.kind is InputKind.USER_INPUT]


def _output_leaves(exported: ExportedProgram, names: DimNames, tree: TreeSpec) -> list[Leaf]:
    from torch.export.graph_signature import OutputKind

    returned = exported.graph.output_node().args[0]
    pairs = zip(returned, exported.graph_signature.output_specs, strict=True)
    found = [(value, spec) for value, spec in pairs if spec.kind is OutputKind.USER_OUTPUT]
    ranges = exported.range_constraints
    return [
        _leaf(name, spec.arg, getattr(value, "meta", {}).get("val"), names, ranges)
        for name, (value, spec) in zip(leaf_names(tree, "output"), found, strict=True)
    ]


def _leaf(name: str, argument: Any, value: Any, names: DimNames, ranges: Mapping[Any, Any]) -> Leaf:
    import torch
    from torch.export.graph_signature import ConstantArgument

    if isinstance(argument, ConstantArgument):
        return Leaf(name, is_constant=True, value=argument.value)
    if not isinstance(value, torch.Tensor):
        return Leaf(name)
    dims = tuple(map(names.expression, value.shape))
    return Leaf(name, value.dtype, dims, tuple(_least(size, ranges) for size in value.shape))


def _least(size: Any, ranges: Mapping[Any, Any]) -> int:
    from torch.utils._sympy.value_ranges import bound_sympy

    if isinstance(size, int):
        return size
    expression = size.node.expr
    known = ranges.get(expression) or bound_sympy(expression, dict(ranges))
    return max(0, int(known.lower)) if known.lower.is_Integer else 0  # or an infinity


def _arguments(exported: ExportedProgram, tree: TreeSpec) -> list[str]:
    """The names of the arguments: those of `forward`, if the program has them."""
    by_position, by_name = tree.child(0).num_children, list(tree.child(1).context or [])
    call = exported.module_call_graph[0].signature
    found = list((call and call.forward_arg_names) or [])
    if len(found) != by_position + len(by_name):
        found = [f"argument_{position}" for position in range(by_position)]
    return [*found[:by_position], *by_name]


# Metadata ---------------------------------------------------------------------------------------


def _leaf_json(leaf: Leaf) -> dict[str, Any]:
    if leaf.is_constant:
        return {"name": leaf.name, "value": leaf.value}
    if leaf.dtype is None:
        return {"name": leaf.name}
    dtype = str(leaf.dtype).removeprefix("torch.")
    return {"name": leaf.name, "dtype": dtype, "dims": list(leaf.dims), "min": list(leaf.shape_min)}


def _leaf_from_json(leaf: Mapping[str, Any]) -> Leaf:
    import torch

    name = str(leaf["name"])
    if "value" in leaf:
        return Leaf(name, is_constant=True, value=leaf["value"])
    if "dtype" not in leaf:
        return Leaf(name)
    dtype = getattr(torch, str(leaf["dtype"]))
    if not isinstance(dtype, torch.dtype):
        raise ValueError(f"{leaf['dtype']} is not a dtype")
    dims = tuple(dim if isinstance(dim, int) else str(dim) for dim in leaf["dims"])
    return Leaf(name, dtype, dims, tuple(int(least) for least in leaf["min"]))


# Calls ------------------------------------------------------------------------------------------


def _as_torch(leaf: Leaf, value: object) -> Any:
    import torch

    if not isinstance(value, (np.ndarray, np.generic)):
        return value
    try:
        return torch.from_numpy(np.array(value))
    except (TypeError, ValueError):  # objects, texts, another byte order
        raise DtypeError(f"{leaf.name}: PyTorch has no tensors of {value.dtype}; convert the array") from None


def _check(leaf: Leaf, value: Any) -> None:
    import torch

    if leaf.is_constant:
        if not _is_same(leaf.value, value):
            raise InputError(f"{leaf.name}: the module was compiled for {leaf.value!r}, got {value!r}")
        return
    if leaf.dtype is None:
        return
    if not isinstance(value, torch.Tensor):
        found = type(value).__name__
        raise InputError(f"{leaf.name}: expected a tensor, got {found}; pass a tensor or a NumPy array")
    if value.dtype != leaf.dtype:
        raise DtypeError(f"{leaf.name}: expected {leaf.dtype}, got {value.dtype}")
    if value.device.type != "cpu":
        raise InputError(f"{leaf.name}: expected a CPU tensor, got one on {value.device}")
    if value.requires_grad and torch.is_grad_enabled():
        raise InputError(
            f"{leaf.name} requires grad; Pteron only runs inference: use torch.no_grad() or detach()"
        )


def _is_same(known: Any, value: Any) -> bool:
    """Equal and of the same type: 2, 2.0 and True may give different results. NaN equals NaN here."""
    import torch

    if isinstance(value, torch.Tensor) and value.ndim == 0:
        value = value.item()
    return type(known) is type(value) and bool(known == value or (known != known and value != value))
