"""Exported program -> exported program in which complex tensors are pairs of real ones, real and imaginary
part, where each operator has a rule here.

Rotary embeddings are often written with complex numbers, which no program can contain. An operator without a
rule (a Fourier transform) keeps its complex tensors: they are put together before it, and taken apart after.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

import torch
from torch.export import ExportedProgram
from torch.export.graph_signature import InputKind, InputSpec
from torch.fx import Graph, Node
from torch.utils._pytree import tree_leaves, tree_map_only

from pteron.export.constants import add_constant

aten = torch.ops.aten


@dataclass(frozen=True)
class Pair:
    """A complex value: nodes of its real and imaginary part."""

    real: Any
    imag: Any


def remove_complex(decomposed: ExportedProgram) -> None:
    """Replace complex tensors by their parts, where that is possible. Changes its argument, whose operators
    write to nothing: a part would not see a write to the other tensor's memory."""
    if any(map(_is_complex, decomposed.graph.nodes)):
        _Rewriter(decomposed).run()


def _is_complex(value: Any) -> bool:
    if not isinstance(value, Node):
        return isinstance(value, complex)
    values = tree_leaves(value.meta.get("val"))
    return any(isinstance(each, torch.Tensor) and each.is_complex() for each in values)


class _Rewriter:
    def __init__(self, program: ExportedProgram) -> None:
        self.program = program
        self.graph: Graph = program.graph
        self.fake: Any = torch._guards.detect_fake_mode([node.meta.get("val") for node in self.graph.nodes])
        self.pairs: dict[Node, Pair] = {}

    def run(self) -> None:
        self._split_constants()
        for node in list(self.graph.nodes):
            if node.op == "call_function":
                with self.graph.inserting_before(node):
                    self._rewrite(node)
        self._return_whole()
        for node in reversed(self.graph.nodes):
            if node.op == "call_function" and not node.users and not node.is_impure():
                self.graph.erase_node(node)
        self._remove_unused_constants()
        self.program.graph_module.recompile()

    def call(self, target: Any, *args: Any, **kwargs: Any) -> Node:
        node = self.graph.call_function(target, args, kwargs)
        given = tree_map_only(Node, lambda each: each.meta["val"], (args, kwargs))
        with self.fake, torch.no_grad():
            node.meta["val"] = target(*given[0], **given[1])
        return node

    def pair(self, value: Any) -> Pair:
        """The parts of any operand; the imaginary part of a real one is None."""
        if not isinstance(value, Node):
            return Pair(value.real, value.imag) if isinstance(value, complex) else Pair(value, None)
        if not _is_complex(value):
            return Pair(value, None)
        if value not in self.pairs:
            parts = self.call(aten.view_as_real.default, value)
            self.pairs[value] = Pair(*(self.call(aten.select.int, parts, -1, index) for index in (0, 1)))
        return self.pairs[value]

    def whole(self, node: Node) -> Node:
        """The complex tensor of a pair, for operators without a rule."""
        pair = self.pairs.get(node)
        if pair is None or (node.op == "call_function" and node.target not in _RULES):
            return node
        return self.call(aten.complex.default, pair.real, pair.imag)

    def _rewrite(self, node: Node) -> None:
        if not _is_complex(node) and not any(map(_is_complex, [*node.all_input_nodes, *node.args])):
            return
        rule = _RULES.get(node.target)
        result = rule(self, node) if rule is not None else None
        if isinstance(result, Pair):
            self.pairs[node] = result
        elif result is not None:
            node.replace_all_uses_with(result)
        else:
            node.args, node.kwargs = tree_map_only(Node, self.whole, (node.args, node.kwargs))

    def _return_whole(self) -> None:
        output, specs = self.graph.output_node(), self.program.graph_signature.output_specs
        with self.graph.inserting_before(output):
            returned = tree_map_only(Node, self.whole, output.args[0])
        for spec, value in zip(specs, returned, strict=True):
            if isinstance(value, Node):
                spec.arg.name = value.name
        output.args = (returned,)

    def _split_constants(self) -> None:
        """Two real constants in place of each complex one."""
        values = {**self.program.state_dict, **self.program.constants}
        written = set(self.program.graph_signature.buffers_to_mutate.values())
        for node, spec in self._inputs():
            value = None if spec.target in written else values.get(spec.target)
            if isinstance(value, torch.Tensor) and value.is_complex():
                parts = {"real": value.detach().real, "imag": value.detach().imag}
                self.pairs[node] = Pair(
                    *(add_constant(self.program, f"{node.name}_{k}", v) for k, v in parts.items())
                )

    def _inputs(self) -> list[tuple[Node, InputSpec]]:
        specs = self.program.graph_signature.input_specs
        return list(zip(self.graph.find_nodes(op="placeholder"), specs, strict=True))

    def _remove_unused_constants(self) -> None:
        for node, spec in self._inputs():
            if node in self.pairs and spec.kind is not InputKind.USER_INPUT and not node.users:
                self.graph.erase_node(node)
                self.program.graph_signature.input_specs.remove(spec)

    # Real arithmetic: None is zero, and operands are nodes or numbers

    def add(self, a: Any, b: Any) -> Any:
        return b if a is None else a if b is None else self._binary(aten.add, a, b)

    def sub(self, a: Any, b: Any) -> Any:
        if b is None:
            return a
        return self._binary(aten.mul, b, -1) if a is None else self._binary(aten.sub, a, b)

    def mul(self, a: Any, b: Any, target: Any = aten.mul) -> Any:
        return None if a is None or b is None else self._binary(target, a, b)

    def div(self, a: Any, b: Any) -> Any:
        return None if a is None else self._binary(aten.div, a, b)

    def _binary(self, packet: Any, a: Any, b: Any) -> Any:
        if not isinstance(a, Node):
            if not isinstance(b, Node):
                return packet(torch.tensor(a), b).item()
            a = self.call(aten.full_like.default, b, a)
        if not isinstance(b, Node):
            return self.call(packet.Scalar, a, b)
        return self.call(getattr(packet, "Tensor", None) or packet.default, a, b)

    def result(self, node: Node, real: Any, imag: Any) -> Pair:
        """A pair of the node's type and shape. A part may be None, a number, or smaller than the other."""
        dtype = node.meta["val"].dtype.to_real()
        known = next(part for part in (real, imag) if isinstance(part, Node))
        tensors = [part if isinstance(part, Node) else self._filled(known, part) for part in (real, imag)]
        tensors = [
            part if part.meta["val"].dtype is dtype else self.call(aten._to_copy.default, part, dtype=dtype)
            for part in tensors
        ]
        first, second = tensors
        if first.meta["val"].shape != second.meta["val"].shape:  # a sum with zeros has the shape of both
            zeros = [self._filled(part, 0.0) for part in tensors]
            first, second = self.add(first, zeros[1]), self.add(second, zeros[0])
        return Pair(first, second)

    def _filled(self, like: Node, number: float | None) -> Node:
        return self.call(aten.full_like.default, like, number or 0.0)


# Rules: a node -> a pair, or the node of a real result; None keeps the operator ----------------------

Rule: TypeAlias = Callable[[_Rewriter, Node], Any]


def _view_as_complex(on: _Rewriter, node: Node) -> Pair:
    return Pair(*(on.call(aten.select.int, node.args[0], -1, index) for index in (0, 1)))


def _view_as_real(on: _Rewriter, node: Node) -> Node:
    pair = on.pair(node.args[0])
    parts = [on.call(aten.unsqueeze.default, part, -1) for part in (pair.real, pair.imag)]
    return on.call(aten.cat.default, parts, -1)


def _polar(on: _Rewriter, node: Node) -> Pair:
    length, angle = node.args
    return Pair(*(on.mul(length, on.call(wave, angle)) for wave in (aten.cos.default, aten.sin.default)))


def _conjugate(on: _Rewriter, node: Node) -> Pair:
    pair = on.pair(node.args[0])
    return Pair(pair.real, on.call(aten.neg.default, pair.imag))


def _add(on: _Rewriter, node: Node) -> Any:
    return _linear(on, node, on.add)


def _sub(on: _Rewriter, node: Node) -> Any:
    return _linear(on, node, on.sub)


def _linear(on: _Rewriter, node: Node, combine: Callable[[Any, Any], Any]) -> Any:
    if node.kwargs or len(node.args) > 2:  # alpha
        return None
    a, b = map(on.pair, node.args)
    return on.result(node, combine(a.real, b.real), combine(a.imag, b.imag))


def _product(target: Any) -> Rule:
    def rule(on: _Rewriter, node: Node) -> Pair:
        a, b = map(on.pair, node.args)
        real = on.sub(on.mul(a.real, b.real, target), on.mul(a.imag, b.imag, target))
        imag = on.add(on.mul(a.real, b.imag, target), on.mul(a.imag, b.real, target))
        return on.result(node, real, imag)

    return rule


def _div(on: _Rewriter, node: Node) -> Any:
    if node.kwargs:  # rounding
        return None
    a, b = map(on.pair, node.args)
    if b.imag is None or not isinstance(b.real, Node):
        if b.imag is None:
            return on.result(node, on.div(a.real, b.real), on.div(a.imag, b.real))
        return None
    # Scaled by the larger part, so that squares do not overflow.
    sizes = [on.call(aten.abs.default, part) for part in (b.real, b.imag)]
    scale = on.call(aten.maximum.default, *sizes)
    c, d = on.div(b.real, scale), on.div(b.imag, scale)
    square = on.mul(on.add(on.mul(c, c), on.mul(d, d)), scale)
    real = on.add(on.mul(a.real, c), on.mul(a.imag, d))
    imag = on.sub(on.mul(a.imag, c), on.mul(a.real, d))
    return on.result(node, on.div(real, square), on.div(imag, square))


def _exp(on: _Rewriter, node: Node) -> Pair:
    pair = on.pair(node.args[0])
    length = on.call(aten.exp.default, pair.real)
    return Pair(*(on.mul(length, on.call(wave, pair.imag)) for wave in (aten.cos.default, aten.sin.default)))


def _abs(on: _Rewriter, node: Node) -> Node:
    pair = on.pair(node.args[0])
    return on.call(aten.hypot.default, pair.real, pair.imag)


def _angle(on: _Rewriter, node: Node) -> Node:
    pair = on.pair(node.args[0])
    return on.call(aten.atan2.default, pair.imag, pair.real)


def _same(on: _Rewriter, node: Node) -> Any:
    """A conversion, of a complex tensor to its own type."""
    source = node.args[0]
    is_same = _is_complex(source) and source.meta["val"].dtype == node.meta["val"].dtype
    return on.pair(source) if is_same else None


def _each_part(on: _Rewriter, node: Node) -> Any:
    """The same operator on both parts: layouts, sums."""
    if not _is_complex(node):
        return None
    pairs = {each: on.pair(each) for each in node.all_input_nodes if _is_complex(each)}

    def part(name: str) -> Node:
        def chosen(each: Node) -> Any:
            return getattr(pairs[each], name) if each in pairs else each

        args, kwargs = tree_map_only(Node, chosen, (node.args, node.kwargs))
        return on.call(node.target, *args, **kwargs)

    return Pair(part("real"), part("imag"))


def _cat(on: _Rewriter, node: Node) -> Any:
    return _each_part(on, node) if all(map(_is_complex, node.args[0])) else None


_RULES: dict[Any, Rule] = {
    aten.view_as_complex.default: _view_as_complex,
    aten.view_as_real.default: _view_as_real,
    aten.complex.default: lambda on, node: on.result(node, *node.args),
    aten.polar.default: _polar,
    aten.real.default: lambda on, node: on.pair(node.args[0]).real,
    aten.imag.default: lambda on, node: on.pair(node.args[0]).imag,
    aten.conj.default: _conjugate,
    aten._conj.default: _conjugate,
    aten.conj_physical.default: _conjugate,
    aten.add.Tensor: _add,
    aten.add.Scalar: _add,
    aten.sub.Tensor: _sub,
    aten.sub.Scalar: _sub,
    aten.mul.Tensor: _product(aten.mul),
    aten.mul.Scalar: _product(aten.mul),
    aten.mm.default: _product(aten.mm),
    aten.bmm.default: _product(aten.bmm),
    aten.div.Tensor: _div,
    aten.div.Scalar: _div,
    aten.exp.default: _exp,
    aten.abs.default: _abs,
    aten.angle.default: _angle,
    aten.cat.default: _cat,
    **dict.fromkeys(
        (
            aten._to_copy.default,
            aten.resolve_conj.default,
            aten.resolve_neg.default,
        ),
        _same,
    ),
    **dict.fromkeys(
        (
            operator.getitem,
            aten.alias.default,
            aten.clone.default,
            aten.detach.default,
            aten.expand.default,
            aten.flip.default,
            aten.gather.default,
            aten.index.Tensor,
            aten.index_select.default,
            aten.mean.dim,
            aten.neg.default,
            aten.permute.default,
            aten.repeat.default,
            aten.select.int,
            aten.slice.Tensor,
            aten.squeeze.default,
            aten.squeeze.dim,
            aten.squeeze.dims,
            aten.sum.default,
            aten.sum.dim_IntList,
            aten.transpose.int,
            aten.unsqueeze.default,
            aten.view.default,
        ),
        _each_part,
    ),
}
