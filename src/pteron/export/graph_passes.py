"""Exported program -> exported program, before lowering: without writes, and with attention decomposed.

A program that writes to buffers or inputs becomes one that takes their old values and returns the new ones:
ExecuTorch supports a written buffer only if all its users are in one delegate. As inputs and outputs, buffers
still stay on the GPU between calls.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch
    from torch.export import ExportedProgram


@dataclass(frozen=True)
class Functional:
    """A program without writes. Its inputs are the states, then the original inputs; its outputs are the new
    states, then the new values of written inputs, then the original outputs."""

    exported: ExportedProgram
    states: dict[str, torch.Tensor]  # current values by buffer name
    written: tuple[int, ...]  # positions of written inputs


def make_functional(exported: ExportedProgram) -> Functional:
    """The program with its writes as outputs, and with copies of returned constants. Returns the same program
    if it has neither; never changes its argument."""
    from torch.export.graph_signature import InputKind, OutputKind

    if not _is_written(exported) and not _returned_constants(exported):
        return Functional(exported, {}, ())
    functional = exported.run_decompositions({})
    signature = functional.graph_signature
    inputs = [spec.arg.name for spec in signature.input_specs if spec.kind is InputKind.USER_INPUT]
    written = tuple(inputs.index(name) for name in signature.user_inputs_to_mutate.values())
    names = list(signature.buffers_to_mutate.values())
    states = {}
    for name in names:
        values = functional.state_dict if name in functional.state_dict else functional.constants
        states[name] = values.pop(name).detach().clone()
    _make_inputs(functional, names)
    for output in signature.output_specs:
        if output.kind in (OutputKind.BUFFER_MUTATION, OutputKind.USER_INPUT_MUTATION):
            output.kind, output.target = OutputKind.USER_OUTPUT, None
    _describe_flat(functional, len(states) + len(inputs), len(signature.output_specs))
    _copy_returned_constants(functional)
    return Functional(functional, states, written)


def _make_inputs(functional: ExportedProgram, names: list[str]) -> None:
    """Turn these buffers into inputs, in this order, before all other inputs."""
    from torch.export.graph_signature import InputKind

    specs = functional.graph_signature.input_specs
    placeholders = [node for node in functional.graph.nodes if node.op == "placeholder"]
    pairs = list(zip(specs, placeholders, strict=True))
    taken = sorted(
        (pair for pair in pairs if pair[0].target in names), key=lambda p: names.index(p[0].target)
    )
    constants = [pair for pair in pairs if pair[0].target is not None and pair[0].target not in names]
    others = [pair for pair in pairs if pair[0].target is None]
    for spec, _ in taken:
        spec.kind, spec.target, spec.persistent = InputKind.USER_INPUT, None, None
    ordered = [*constants, *taken, *others]
    specs[:] = [spec for spec, _ in ordered]
    last = ordered[0][1]
    functional.graph._root.append(last)
    for _, node in ordered[1:]:
        last.append(node)
        last = node
    functional.graph_module.recompile()


def _describe_flat(functional: ExportedProgram, inputs: int, outputs: int) -> None:
    """Let the program take and return flat tuples; CompiledModule handles the pytrees."""
    from torch.utils._pytree import tree_structure

    signature = functional.module_call_graph[0].signature
    assert signature is not None
    signature.in_spec = tree_structure(((0,) * inputs, {}))
    signature.forward_arg_names = [f"input_{position}" for position in range(inputs)]
    signature.out_spec = tree_structure((0,) * outputs)


def _is_written(exported: ExportedProgram) -> bool:
    """Whether a program writes to buffers or inputs: by its operators or, after decomposition, by its
    outputs."""
    signature = exported.graph_signature
    by_outputs = signature.buffers_to_mutate or signature.user_inputs_to_mutate
    return bool(by_outputs) or any(map(_writes, exported.graph.nodes))


def _writes(node: Any) -> bool:
    schema = getattr(node.target, "_schema", None)
    return schema is not None and bool(schema.is_mutable)


def decompose_attention(exported: ExportedProgram) -> ExportedProgram:
    """The program with scaled_dot_product_attention in operators that the GPU delegate supports; PyTorch's
    own decomposition leaves some to the host. Returns the same program if it has none."""
    import torch

    operator = torch.ops.aten.scaled_dot_product_attention.default
    if not any(node.target is operator for node in exported.graph.nodes):
        return exported
    return exported.run_decompositions({operator: _attention})


def _attention(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attn_mask: torch.Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    *,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Any:
    """softmax(scale · query · keyᵀ + mask) · value; a row with all keys masked gives zeros."""
    import torch

    if is_causal or enable_gqa or dropout_p:
        return NotImplemented
    factor = 1 / math.sqrt(query.shape[-1]) if scale is None else scale
    scores = (query * factor) @ key.transpose(-2, -1)
    if attn_mask is None:
        return torch.softmax(scores, -1) @ value
    if attn_mask.dtype == torch.bool:
        scores = torch.where(attn_mask, scores, torch.full_like(scores, -math.inf))
    else:
        scores = scores + attn_mask
    is_masked = scores.amax(-1, keepdim=True) == -math.inf
    weights = torch.softmax(scores, -1)
    return torch.where(is_masked, torch.zeros_like(weights), weights) @ value


def _returned_constants(exported: ExportedProgram) -> list[int]:
    """Positions of outputs that are parameters or buffers."""
    signature = exported.graph_signature
    constants = {
        *signature.inputs_to_parameters,
        *signature.inputs_to_buffers,
        *signature.inputs_to_lifted_tensor_constants,
    }
    returned = exported.graph.output_node().args[0]
    return [index for index, node in enumerate(returned) if getattr(node, "name", None) in constants]


def _copy_returned_constants(exported: ExportedProgram) -> None:
    """Return copies of parameters and buffers: the partitioner does not support a constant as an output."""
    import torch

    graph, specs = exported.graph, exported.graph_signature.output_specs
    output = graph.output_node()
    returned = list(output.args[0])
    for index in _returned_constants(exported):
        with graph.inserting_before(output):
            copy = graph.call_function(torch.ops.aten.clone.default, (returned[index],))
            copy.meta = dict(returned[index].meta)
        returned[index] = copy
        specs[index].arg.name = copy.name
    output.args = (tuple(returned),)
    exported.graph_module.recompile()
