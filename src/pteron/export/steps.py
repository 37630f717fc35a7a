"""A program that ExecuTorch cannot write as a whole -> steps: programs, and operators that PyTorch runs
between them.

`find_unlowerable` names the operators that no program can contain. `split` takes them out: what is left
becomes programs, and a graph calls programs and operators in order.
"""

from __future__ import annotations

import operator
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from executorch.exir.operator.convert import to_out_variant
from executorch.exir.passes.executorch_prim_ops_registry import is_sym_op
from torch._ops import HigherOrderOperator, OpOverload
from torch.export import ExportedProgram
from torch.export.exported_program import ModuleCallEntry, ModuleCallSignature
from torch.export.graph_signature import (
    ConstantArgument,
    ExportGraphSignature,
    InputKind,
    InputSpec,
    OutputKind,
    OutputSpec,
    SymIntArgument,
    TensorArgument,
)
from torch.fx import GraphModule, Node
from torch.fx.experimental.symbolic_shapes import free_unbacked_symbols
from torch.fx.passes.infra.partitioner import CapabilityBasedPartitioner
from torch.fx.passes.operator_support import OperatorSupportBase
from torch.fx.passes.utils.fuser_utils import fuse_by_partitions
from torch.utils._pytree import tree_leaves, tree_structure

from pteron.errors import UnsupportedError
from pteron.export.compiled import listed
from pteron.export.copies import copied_graph
from pteron.export.partitioner import largest_size, why_not_on_gpu
from pteron.host.lookup import find_operator

aten, higher_order = torch.ops.aten, torch.ops.higher_order
_LOOPS_IN_PROGRAMS = (higher_order.cond, higher_order.map_impl, higher_order.scan)
_FUSED = ("quantized_decomposed", "torchao")  # with the layers that use them
_DTYPES = {
    *(torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64),
    *(torch.float16, torch.bfloat16, torch.float32, torch.float64),
}


# Operators that no program can contain ------------------------------------------------------------


def find_unlowerable(module: GraphModule, *, with_unbacked: bool = True) -> dict[Node, str]:
    """The calls that ExecuTorch cannot write, or Pteron cannot run, each with the reason. Without
    `with_unbacked`, calls on tensors whose shape depends on values are among them."""
    reasons: dict[Node, str] = {}
    for node in module.graph.nodes:
        if node.op == "call_function":
            if node.target is operator.getitem and isinstance(node.args[0].meta.get("val"), (list, tuple)):
                reason = reasons.get(node.args[0])
            else:
                reason = _reason(module, node, with_unbacked)
            if reason is not None:
                reasons[node] = reason
    return reasons


def _reason(module: GraphModule, node: Node, with_unbacked: bool) -> str | None:
    values = [node.meta.get("val"), *(operand.meta.get("val") for operand in node.all_input_nodes)]
    for tensor in (each for each in tree_leaves(values) if isinstance(each, torch.Tensor)):
        if tensor.dtype not in _DTYPES:
            return f"a program cannot hold tensors of {tensor.dtype}"
        if not with_unbacked and free_unbacked_symbols(tensor):
            return "its shape depends on values"
        try:
            [largest_size(size) for size in tensor.shape]
        except UnsupportedError:
            return "its shape depends on values, and has no maximum"
    if is_sym_op(node.target):
        return None
    if isinstance(node.target, HigherOrderOperator):
        return _reason_of_loop(module, node, with_unbacked)
    if not isinstance(node.target, OpOverload):
        return "ExecuTorch has no such function"
    if node.target.namespace in _FUSED or _runs_on_host(node.target):
        return None
    return why_not_on_gpu(node)


def _reason_of_loop(module: GraphModule, node: Node, with_unbacked: bool) -> str | None:
    if node.target not in _LOOPS_IN_PROGRAMS:
        return "ExecuTorch cannot write it"
    for body in _bodies(module, node).values():
        for inner, reason in find_unlowerable(body, with_unbacked=with_unbacked).items():
            return f"its body calls {operator_name(inner)} ({reason})"
    return None


def _runs_on_host(target: OpOverload) -> bool:
    """Whether the program can call an operator outside its delegates. ExecuTorch replaces views by copies."""
    if target.is_view:
        packet = getattr(getattr(torch.ops, target.namespace), f"{target._opname}_copy", None)
        target = getattr(packet, target._overloadname, target)
    try:
        out, _ = to_out_variant(target)
    except (RuntimeError, AssertionError):
        return False
    return find_operator(out.name()) is not None


def _bodies(module: GraphModule, node: Node) -> dict[str, GraphModule]:
    """The graphs that control flow runs, by attribute."""
    attributes = [each.target for each in node.all_input_nodes if each.op == "get_attr"]
    found = {name: getattr(module, name) for name in attributes}
    return {name: body for name, body in found.items() if isinstance(body, GraphModule)}


def operator_name(node: Node) -> str:
    if isinstance(node.target, OpOverload):
        return str(node.target)
    return str(getattr(node.target, "__name__", node.target))


# Splitting ----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Part:
    """A program, and the positions of its inputs among the arguments of the call."""

    exported: ExportedProgram
    live: tuple[int, ...]
    returns_tuple: bool = True


@dataclass
class Split:
    """A graph that calls parts and operators in order; its inputs and outputs are those of the program."""

    graph_module: GraphModule
    parts: dict[str, Part]  # by the name of the submodule that runs it
    reasons: dict[str, str]  # of each operator that PyTorch runs
    functional: ExportedProgram
    constants: dict[Node, InputSpec]

    def keep_in_torch(self, name: str, reason: str) -> None:
        """Let PyTorch run a part that cannot be lowered."""
        del self.parts[name]
        for node in getattr(self.graph_module, name).graph.nodes:
            if _is_shown(node):
                self.reasons.setdefault(operator_name(node), reason)

    def finish(self) -> None:
        """Remove constants from the calls of programs, and from the inputs of the graph."""
        for node in self.graph_module.graph.nodes:
            if node.op == "call_module" and node.target in self.parts:
                part = self.parts[node.target]
                node.args = tuple(node.args[position] for position in part.live)
                self.parts[node.target] = Part(part.exported, tuple(range(len(part.live))))
        _bind_constants(self.graph_module, self.constants, self.functional)
        self.graph_module.graph.lint()


class _Support(OperatorSupportBase):  # type: ignore[misc]  # untyped
    """Calls that give tensors. Integers are cheap to compute between programs."""

    def __init__(self, unlowerable: Mapping[Node, str]) -> None:
        self._unlowerable = unlowerable

    def is_node_supported(self, submodules: Mapping[str, torch.nn.Module], node: Node) -> bool:
        if node.op == "get_attr":
            return all(self.is_node_supported(submodules, user) for user in node.users)
        if node.op != "call_function" or node in self._unlowerable:
            return False
        leaves = tree_leaves(node.meta.get("val"))
        return bool(leaves) and all(isinstance(leaf, torch.Tensor) for leaf in leaves)


def split(functional: ExportedProgram, unlowerable: Mapping[Node, str]) -> Split:
    """Divide a program without writes. Changes its argument."""
    reasons = reasons_by_operator(unlowerable)
    module = functional.graph_module
    partitioner = CapabilityBasedPartitioner(module, _Support(unlowerable), allows_single_node_partition=True)
    proposed = [part.nodes for part in partitioner.propose_partitions()]
    fused = fuse_by_partitions(
        module, [nodes for nodes in proposed if _computes(nodes)], "program_", always_return_tuple=True
    )
    constants = _constants(functional)
    parts: dict[str, Part] = {}
    for node in list(fused.graph.nodes):
        if node.op == "call_module":
            parts[node.target] = _part(functional, getattr(fused, node.target), node.args, constants)
        elif isinstance(node.target, HigherOrderOperator):
            parts.update(_loop_parts(functional, fused, node, constants))
    return Split(fused, parts, reasons, functional, constants)


def reasons_by_operator(unlowerable: Mapping[Node, str]) -> dict[str, str]:
    return {operator_name(node): reason for node, reason in unlowerable.items() if _is_shown(node)}


def _computes(nodes: Mapping[Node, Any]) -> bool:
    """Whether a part has more than views and copies, which PyTorch does faster than a transfer."""
    return any(
        isinstance(node.target, HigherOrderOperator)
        or (isinstance(node.target, OpOverload) and not node.target.is_view)
        for node in nodes
    )


def _constants(functional: ExportedProgram) -> dict[Node, InputSpec]:
    placeholders = functional.graph.find_nodes(op="placeholder")
    pairs = zip(placeholders, functional.graph_signature.input_specs, strict=True)
    return {node: spec for node, spec in pairs if spec.kind is not InputKind.USER_INPUT}


def _loop_parts(
    functional: ExportedProgram, module: GraphModule, node: Node, constants: Mapping[Node, InputSpec]
) -> Iterator[tuple[str, Part]]:
    """The bodies of a loop that PyTorch runs, as programs, where these can be lowered. Only its last argument
    is the same in each iteration: a constant among the others is a first value."""
    *carried, fixed = node.args
    changing = [each for each in tree_leaves(carried) if each not in _body_nodes(module, node)]
    operands = [*(None for _ in changing), *tree_leaves(fixed)]
    for name, body in _bodies(module, node).items():
        inputs = len(body.graph.find_nodes(op="placeholder"))
        if inputs == len(operands) and not find_unlowerable(body):
            yield name, _part(functional, body, operands, constants)


def _body_nodes(module: GraphModule, node: Node) -> set[Node]:
    names = _bodies(module, node)
    return {each for each in node.all_input_nodes if each.op == "get_attr" and each.target in names}


def _part(
    functional: ExportedProgram,
    original: GraphModule,
    operands: Sequence[Any],
    constants: Mapping[Node, InputSpec],
) -> Part:
    """A copy of a submodule as a program; constants among its operands become the program's own."""
    module = copied_graph(original)
    pairs = list(zip(module.graph.find_nodes(op="placeholder"), operands, strict=True))
    known = {inner: constants[outer] for inner, outer in pairs if outer in constants}
    _compute_sizes([(inner, outer) for inner, outer in pairs if inner not in known])
    live = {}
    for position, (inner, _) in enumerate(pairs):
        if inner in known:
            continue
        if inner.users or isinstance(inner.meta.get("val"), torch.Tensor):
            live[inner] = position
        else:
            module.graph.erase_node(inner)
    _move_first(module, [*known, *live])
    output = module.graph.output_node()
    returns_tuple = isinstance(output.args[0], (list, tuple))
    output.args = (tuple(tree_leaves(output.args[0])),)
    module.recompile()
    return Part(_program(functional, module, known, list(live)), tuple(live.values()), returns_tuple)


def _program(
    functional: ExportedProgram, module: GraphModule, known: Mapping[Node, InputSpec], live: Sequence[Node]
) -> ExportedProgram:
    """A graph as a program, whose inputs are constants of another program, then `live`."""
    returned = module.graph.output_node().args[0]
    inputs = [
        InputSpec(spec.kind, TensorArgument(name=node.name), spec.target, spec.persistent)
        for node, spec in known.items()
    ]
    inputs += [InputSpec(InputKind.USER_INPUT, _argument(node), None) for node in live]
    outputs = [OutputSpec(OutputKind.USER_OUTPUT, _argument(node), None) for node in returned]
    call = ModuleCallSignature(
        inputs=[],
        outputs=[],
        in_spec=tree_structure(((0,) * len(live), {})),
        out_spec=tree_structure((0,) * len(returned)),
    )
    targets = {spec.target for spec in known.values()}
    return ExportedProgram(
        root=module,
        graph=module.graph,
        graph_signature=ExportGraphSignature(inputs, outputs),
        state_dict={name: value for name, value in functional.state_dict.items() if name in targets},
        range_constraints=dict(functional.range_constraints),
        module_call_graph=[ModuleCallEntry("", call)],
        constants={name: value for name, value in functional.constants.items() if name in targets},
        verifiers=[functional.verifier],
    )


def _argument(node: Any) -> Any:
    if not isinstance(node, Node):
        return ConstantArgument(name="", value=node)
    kind = TensorArgument if isinstance(node.meta.get("val"), torch.Tensor) else SymIntArgument
    return kind(name=node.name)


def _move_first(module: GraphModule, placeholders: Sequence[Node]) -> None:
    for node in reversed(placeholders):
        module.graph._root.append(node)


def _compute_sizes(pairs: Sequence[tuple[Node, Node]]) -> None:
    """Replace integer inputs of a part by the sizes of its tensors, or by arithmetic on them, where its
    tensors have those sizes."""
    tensors = [inner for inner, _ in pairs if isinstance(inner.meta.get("val"), torch.Tensor)]
    sizes = {
        size.node.expr: (inner, dim)
        for inner in tensors
        for dim, size in enumerate(inner.meta["val"].shape)
        if isinstance(size, torch.SymInt)
    }
    for inner, outer in pairs:
        if not isinstance(inner.meta.get("val"), torch.SymInt) or not inner.users:
            continue
        first = next(node for node in inner.graph.nodes if node.op != "placeholder")
        with inner.graph.inserting_before(first):
            found = _computed(inner.graph, outer, sizes)
        if found is not None:
            inner.replace_all_uses_with(found)


def _computed(graph: torch.fx.Graph, outer: Any, sizes: Mapping[Any, tuple[Node, int]]) -> Any:
    """An integer of the outer graph, computed from sizes; None if it needs others."""
    if not isinstance(outer, Node):
        return outer
    value = outer.meta.get("val")
    if isinstance(value, torch.SymInt) and value.node.expr in sizes:
        node = graph.call_function(aten.sym_size.int, sizes[value.node.expr])
    elif outer.op == "call_function" and is_sym_op(outer.target) and not isinstance(outer.target, OpOverload):
        arguments = [_computed(graph, argument, sizes) for argument in outer.args]
        if any(argument is None for argument in arguments):
            return None
        node = graph.call_function(outer.target, tuple(arguments))
    else:
        return None
    node.meta = dict(outer.meta)
    return node


def _bind_constants(
    module: GraphModule, constants: Mapping[Node, InputSpec], functional: ExportedProgram
) -> None:
    """Turn constants that PyTorch's operators read into attributes."""
    values = {**functional.state_dict, **functional.constants}
    for index, (node, spec) in enumerate(constants.items()):
        if node.users:
            module.register_buffer(f"constant_{index}", values[spec.target].detach())
            with module.graph.inserting_before(node):
                attribute = module.graph.get_attr(f"constant_{index}")
            attribute.meta = dict(node.meta)
            node.replace_all_uses_with(attribute)
        module.graph.erase_node(node)
    placeholders = module.graph.find_nodes(op="placeholder")
    _move_first(module, placeholders)
    module.recompile()


def _is_shown(node: Node) -> bool:
    is_operator = node.op == "call_function" and isinstance(node.target, (OpOverload, HigherOrderOperator))
    return is_operator and not is_sym_op(node.target)


def torch_operators(graph_module: GraphModule) -> Counter[str]:
    """Uses of each operator that PyTorch runs, in a graph that calls programs."""
    modules = [graph_module, *graph_module.children()]
    return Counter(
        operator_name(node)
        for module in modules
        if isinstance(module, GraphModule)
        for node in module.graph.nodes
        if _is_shown(node)
    )


def step_lines(graph_module: GraphModule, describe: Callable[[str], str]) -> Iterator[str]:
    """One line for each program, and one for PyTorch's operators between two of them."""
    between: Counter[str] = Counter()
    for node in [*graph_module.graph.nodes, None]:
        if node is not None and node.op != "call_module":
            between.update([operator_name(node)] if _is_shown(node) else [])
            continue
        if between:
            yield f"PyTorch: {listed(between)}"
            between.clear()
        if node is not None:
            yield describe(node.target)
