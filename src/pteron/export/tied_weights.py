"""Exported program -> exported program in which each use of a quantized weight has constants of its own.

ExecuTorch packs the weight of a quantized linear layer in place, so a weight that two layers share would be
packed twice. The packed copies are equal, and equal data is stored once in a program.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch
    from torch.export import ExportedProgram


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
            value = _constant(decomposed, operand)
            if value is None:
                continue
            if operand in used:
                copy = _add_buffer(decomposed, f"{operand.name}_{len(used)}", value, operand.meta)
                node.replace_input_with(operand, copy)
                operand = copy
            used.add(operand)
    decomposed.graph_module.recompile()


def _is_dequantization(node: Any) -> bool:
    return node.op == "call_function" and "dequantize" in str(node.target)


def _constant(program: ExportedProgram, node: Any) -> torch.Tensor | None:
    from torch._export.utils import get_buffer, get_lifted_tensor_constant, get_param

    if node.op != "placeholder":
        return None
    for find in (get_param, get_buffer, get_lifted_tensor_constant):
        value = find(program, node)
        if value is not None:
            return value
    return None


def _add_buffer(program: ExportedProgram, name: str, value: torch.Tensor, meta: dict[str, Any]) -> Any:
    from torch.export.graph_signature import InputKind, InputSpec, TensorArgument

    graph = program.graph
    with graph.inserting_before(next(iter(graph.nodes))):
        constant = graph.placeholder(name)
    constant.meta = dict(meta)
    program.state_dict[name] = value.detach().clone()
    spec = InputSpec(InputKind.BUFFER, TensorArgument(name=constant.name), name, persistent=True)
    program.graph_signature.input_specs.insert(0, spec)
    return constant
