"""An exported program that writes to buffers or inputs -> one that takes old values and returns new ones.

ExecuTorch places a written buffer only where a single delegate has all its users. As inputs and outputs such
buffers are like all other tensors, and stay on the GPU from call to call all the same.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pteron.export.lowering import copy_returned_constants, returned_constants

if TYPE_CHECKING:
    import torch
    from torch.export import ExportedProgram
import math


@dataclass(frozen=True)
class Functional:
    """A program that writes nothing. It takes the states before its inputs, and returns the new states, then
    the new values of the inputs that were written to, then its outputs."""

    exported: ExportedProgram
    states: dict[str, torch.Tensor]  # by the buffer's name: the value it has now
    written: tuple[int, ...]  # inputs, by position


def make_functional(exported: ExportedProgram) -> Functional:
    """The program with the writes of the module as outputs, and copies of the constants that it returns;
    itself, where there is neither. The program that is given stays as it is."""
    from torch.export.graph_signature import InputKind, OutputKind

    if not _is_written(exported) and not returned_constants(exported):
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
    _take(functional, names)
    for output in signature.output_specs:
        if output.kind in (OutputKind.BUFFER_MUTATION, OutputKind.USER_INPUT_MUTATION):
            output.kind, output.target = OutputKind.USER_OUTPUT, None
    _describe_flat(functional, len(states) + len(inputs), len(signature.output_specs))
    copy_returned_constants(functional)
    return Functional(functional, states, written)


def _take(functional: ExportedProgram, names: list[str]) -> None:
    """Make inputs of some buffers, in this order, before all other inputs."""
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
    """Let the program take and give tuples: pytrees are for who calls it."""
    from torch.utils._pytree import tree_structure

    signature = functional.module_call_graph[0].signature
    assert signature is not None
    signature.in_spec = tree_structure(((0,) * inputs, {}))
    signature.forward_arg_names = [f"input_{position}" for position in range(inputs)]
    signature.out_spec = tree_structure((0,) * outputs)


def _is_written(exported: ExportedProgram) -> bool:
    """Whether a program writes to buffers or inputs, by its operators or, decomposed, by its outputs."""
    signature = exported.graph_signature
    by_outputs = signature.buffers_to_mutate or signature.user_inputs_to_mutate
    return bool(by_outputs) or any(map(_writes, exported.graph.nodes))


def _writes(node: Any) -> bool:
    schema = getattr(node.target, "_schema", None)
    return schema is not None and bool(schema.is_mutable)


def decompose_attention(exported: ExportedProgram) -> ExportedProgram:
    """The program with its scaled_dot_product_attention written out; itself, where it has none."""
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
    """softmax(scale · query · keyᵀ + mask) · value, where a row whose keys are all hidden gives zeros."""
    import torch

    if is_causal or enable_gqa or dropout_p:
        return NotImplemented
    factor = 1 / math.sqrt(query.shape[-1]) if scale is None else scale
    scores = (query * factor) @ key.transpose(-2, -1)
    if attn_mask is None:  # no key is hidden
        return torch.softmax(scores, -1) @ value
    if attn_mask.dtype == torch.bool:
        scores = torch.where(attn_mask, scores, torch.full_like(scores, -math.inf))
    else:
        scores = scores + attn_mask
    is_hidden = scores.amax(-1, keepdim=True) == -math.inf
    weights = torch.softmax(scores, -1)
    return torch.where(is_hidden, torch.zeros_like(weights), weights) @ value
