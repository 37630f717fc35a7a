"""The inputs and outputs of an exported program as pytrees: flattens calls and checks their inputs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from pteron.errors import DtypeError, InputError, ShapeError

if TYPE_CHECKING:
    import torch
    from torch.export import ExportedProgram

_SHAPES_KEPT = 1024


@dataclass(frozen=True, slots=True)
class Leaf:
    """One input: a tensor, whose dims are integers or symbols, or a constant that the program was exported
    with."""

    name: str
    dtype: torch.dtype | None = None
    dims: tuple[Any, ...] = ()
    is_constant: bool = False
    value: Any = None  # of a constant


class Signature:
    def __init__(self, exported: ExportedProgram) -> None:
        assert exported.call_spec.in_spec is not None
        self._in_spec = exported.call_spec.in_spec
        self._out_spec = exported.call_spec.out_spec
        self._ranges = dict(exported.range_constraints)
        self.leaves = _leaves(exported)
        self._fitting: set[tuple[Any, ...]] = set()

    def flatten(self, args: Sequence[object], kwargs: Mapping[str, object]) -> list[Any]:
        """The leaves of a call, unchecked."""
        from torch.utils._pytree import tree_flatten

        ordered = self._in_order(kwargs)
        leaves, spec = tree_flatten((tuple(args), ordered))
        if spec != self._in_spec:
            raise InputError(f"the call differs from the example: expected {self._in_spec}, got {spec}")
        return list(leaves)

    def check(self, given: Sequence[object]) -> list[Any]:
        """The leaves as torch tensors and constants, checked."""
        leaves = [_as_torch(value) for value in given]
        for leaf, value in zip(self.leaves, leaves, strict=True):
            _check(leaf, value)
        self._check_shapes(leaves)
        return leaves

    def unflatten(self, outputs: Sequence[object]) -> Any:
        """The outputs in the module's structure."""
        from torch.utils._pytree import tree_unflatten

        return tree_unflatten(outputs, self._out_spec)

    def fits(self, leaves: Sequence[Any]) -> bool:
        """Whether the shapes of inputs are valid."""
        try:
            self._check_shapes(leaves)
        except ShapeError:
            return False
        return True

    def _in_order(self, kwargs: Mapping[str, object]) -> dict[str, object]:
        """Keyword arguments in the example's order."""
        expected: list[str] = self._in_spec.child(1).context or []
        if set(kwargs) != set(expected):
            named = ", ".join(expected) or "none"
            raise InputError(f"expected keyword arguments {named}; got {', '.join(kwargs) or 'none'}")
        return {name: kwargs[name] for name in expected}

    def _check_shapes(self, leaves: Sequence[Any]) -> None:
        each = zip(self.leaves, leaves, strict=True)
        shapes = tuple(tuple(value.shape) if leaf.dtype else () for leaf, value in each)
        if shapes in self._fitting:
            return
        sizes: dict[Any, int] = {}
        for is_derived in (False, True):  # plain symbols first: they give the sizes that expressions use
            for leaf, shape in zip(self.leaves, shapes, strict=True):
                self._check_shape(leaf, shape, sizes, is_derived)
        if len(self._fitting) >= _SHAPES_KEPT:
            self._fitting.clear()
        self._fitting.add(shapes)

    def _check_shape(self, leaf: Leaf, shape: Sequence[int], sizes: dict[Any, int], is_derived: bool) -> None:
        if len(shape) != len(leaf.dims):
            raise ShapeError(f"{leaf.name}: expected {_shown(leaf.dims)}, got {list(shape)}")
        for position, (dim, size) in enumerate(zip(leaf.dims, shape, strict=True)):
            where = f"{leaf.name}: dim {position} of {list(shape)}"
            if isinstance(dim, int):
                if dim != size:
                    raise ShapeError(f"{where} must be {dim}")
            elif dim.is_Symbol:
                range = self._ranges.get(dim)
                if range is not None and not range.lower <= size <= range.upper:
                    raise ShapeError(f"{where} must be from {range.lower} to {range.upper}")
                if sizes.setdefault(dim, size) != size:
                    raise ShapeError(f"{where} must be {sizes[dim]}, as {dim} is in another input")
            elif is_derived and dim.free_symbols <= sizes.keys() and dim.subs(sizes) != size:
                raise ShapeError(f"{where} must be {dim} = {dim.subs(sizes)}")


def _leaves(exported: ExportedProgram) -> list[Leaf]:
    """The caller's inputs, without parameters, buffers and constants."""
    from torch.export.graph_signature import InputKind

    placeholders = (node for node in exported.graph.nodes if node.op == "placeholder")
    pairs = zip(placeholders, exported.graph_signature.input_specs, strict=True)
    return [_leaf(node, spec.arg) for node, spec in pairs if spec.kind is InputKind.USER_INPUT]


def _leaf(node: Any, argument: Any) -> Leaf:
    import torch
    from torch.export.graph_signature import ConstantArgument

    if isinstance(argument, ConstantArgument):
        return Leaf(node.name, is_constant=True, value=argument.value)
    value = node.meta.get("val")
    if isinstance(value, torch.Tensor):
        return Leaf(node.name, value.dtype, tuple(map(_dim, value.shape)))
    return Leaf(node.name)


def _dim(size: Any) -> Any:
    """An integer or a symbolic expression."""
    return size if isinstance(size, int) else size.node.expr


def _shown(dims: Sequence[Any]) -> str:
    return f"[{', '.join(map(str, dims))}]"


def _as_torch(value: object) -> Any:
    import torch

    return torch.from_numpy(np.array(value)) if isinstance(value, (np.ndarray, np.generic)) else value


def _check(leaf: Leaf, value: Any) -> None:
    import torch

    if leaf.is_constant:
        if not _is_same(leaf.value, value):
            raise InputError(f"{leaf.name}: the module was compiled for {leaf.value!r}, got {value!r}")
        return
    if leaf.dtype is None:
        return
    if not isinstance(value, torch.Tensor):
        raise InputError(f"{leaf.name}: expected a tensor, got {type(value).__name__}")
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
