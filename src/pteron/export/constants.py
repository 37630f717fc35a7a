"""Constants of an exported program: what depends on them alone is folded, none is part of a larger tensor,
and each use of a quantized weight has its own.

ExecuTorch packs the weight of a quantized linear layer in place, so a weight that two layers share would be
packed twice. The packed copies are equal, and equal data is stored once in a program.
"""

from __future__ import annotations

from collections.abc import Mapping
from operator import getitem
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch
    from torch.export import ExportedProgram
    from torch.fx import Node

_FOLDED_BYTES_MAX = 1 << 20  # a larger result is folded only if it is not larger than its operands


def constant_of(program: ExportedProgram, node: Node) -> torch.Tensor | None:
    """The value of a parameter, a buffer or another constant."""
    from torch._export.utils import get_buffer, get_lifted_tensor_constant, get_param

    if node.op != "placeholder":
        return None
    for find in (get_param, get_buffer, get_lifted_tensor_constant):
        value = find(program, node)
        if value is not None:
            return value
    return None


def add_constant(
    program: ExportedProgram, name: str, value: torch.Tensor, *, is_buffer: bool = False
) -> Node:
    """A new constant of a program, with a copy of this value."""
    import torch
    from torch.export.graph_signature import InputKind, InputSpec, TensorArgument

    graph = program.graph
    stored = value.detach().clone(memory_format=torch.contiguous_format)
    (program.state_dict if is_buffer else program.constants)[name] = stored
    fake = torch._guards.detect_fake_mode([node.meta.get("val") for node in graph.nodes])
    with graph.inserting_before(next(iter(graph.nodes))):
        node = graph.placeholder(name)
    node.meta["val"] = fake.from_tensor(stored, static_shapes=True)
    kind = InputKind.BUFFER if is_buffer else InputKind.CONSTANT_TENSOR
    spec = InputSpec(kind, TensorArgument(name=node.name), name, persistent=True)
    program.graph_signature.input_specs.insert(0, spec)
    return node


def fold_constants(decomposed: ExportedProgram) -> None:
    """Compute what depends on constants alone, such as tables of positions, and make it a constant. Changes
    its argument. ExecuTorch cannot write a delegate without inputs."""
    import torch

    graph, signature = decomposed.graph, decomposed.graph_signature
    values: dict[Any, Any] = {}
    for node in graph.find_nodes(op="placeholder"):
        value = constant_of(decomposed, node)
        is_plain = type(value) in (torch.Tensor, torch.nn.Parameter)
        if value is not None and is_plain and _is_unwritten(signature, node):
            values[node] = value.detach()
    computed = {}
    with torch.no_grad():
        for node in graph.nodes:
            if node.op == "call_function" and _is_folded(node, values):
                args, kwargs = torch.fx.map_arg((node.args, node.kwargs), values.__getitem__)
                values[node] = computed[node] = node.target(*args, **kwargs)
    _replace_folded(decomposed, computed)


def make_compact(decomposed: ExportedProgram) -> None:
    """Copy constants that are part of a larger tensor: ExecuTorch would store all of that."""
    import torch

    for values in (decomposed.state_dict, decomposed.constants):
        for name, value in values.items():
            is_plain = type(value) in (torch.Tensor, torch.nn.Parameter)
            if is_plain and value.untyped_storage().nbytes() != value.nbytes:
                values[name] = value.detach().clone(memory_format=torch.contiguous_format)


def untie_quantized_weights(decomposed: ExportedProgram) -> None:
    """Copy the constants of all dequantizations that share them, but the first. Changes its argument."""
    graph = decomposed.graph
    for node in [node for node in graph.nodes if _is_dequantization(node)]:
        for user in list(node.users)[1:]:
            with graph.inserting_before(user):
                user.replace_input_with(node, graph.node_copy(node))
    used: set[Any] = set()
    for node in [node for node in graph.nodes if _is_dequantization(node)]:
        for operand in node.all_input_nodes:
            value = constant_of(decomposed, operand)
            if value is None:
                continue
            if operand in used:
                # ExecuTorch packs parameters and buffers, and no other constants.
                copy = add_constant(decomposed, f"{operand.name}_{len(used)}", value, is_buffer=True)
                node.replace_input_with(operand, copy)
                operand = copy
            used.add(operand)
    decomposed.graph_module.recompile()


def _is_dequantization(node: Any) -> bool:
    return node.op == "call_function" and "dequantize" in str(node.target)


def _is_unwritten(signature: Any, placeholder: Any) -> bool:
    return signature.inputs_to_buffers.get(placeholder.name) not in signature.buffers_to_mutate.values()


def _is_folded(node: Any, values: Mapping[Any, Any]) -> bool:
    """Whether to compute a node now: its operands are known, and the result is worth storing."""
    import torch

    if not all(operand in values for operand in node.all_input_nodes) or node.is_impure():
        return False
    if node.target is getitem:
        return True
    if not isinstance(node.target, torch._ops.OpOverload):
        return False
    if torch.Tag.nondeterministic_seeded in node.target.tags or node.target.namespace != "aten":
        return False
    results = _tensors(node.meta.get("val"))
    if not results or any(isinstance(size, torch.SymInt) for result in results for size in result.shape):
        return False
    if any(operand.op == "placeholder" and _is_layout(node.target) for operand in node.all_input_nodes):
        return False  # fusions expect a weight and its transposition
    read = sum(each.nbytes for operand in node.all_input_nodes for each in _tensors(values[operand]))
    return bool(sum(result.nbytes for result in results) <= max(read, _FOLDED_BYTES_MAX))


def _tensors(value: Any) -> list[Any]:
    """The tensors that an operator returned: one or several, none if it returned anything else."""
    import torch

    found = list(value) if isinstance(value, (list, tuple)) else [value]
    return found if all(isinstance(each, torch.Tensor) for each in found) else []


def _is_layout(target: Any) -> bool:
    import torch

    aten = torch.ops.aten
    return target in (aten.t.default, aten.transpose.int, aten.permute.default)


def _replace_folded(decomposed: ExportedProgram, computed: Mapping[Any, Any]) -> None:
    """Make constants of computed nodes that others use."""
    graph = decomposed.graph
    for node, value in computed.items():
        if all(user in computed for user in node.users):
            continue
        constant = add_constant(decomposed, f"folded_{node.name}", value)
        constant.meta = {**node.meta, "val": constant.meta["val"]}
        node.replace_all_uses_with(constant)
        for output in decomposed.graph_signature.output_specs:
            if output.arg.name == node.name:
                output.arg.name = constant.name
    graph.eliminate_dead_code()
    decomposed.graph_module.recompile()
