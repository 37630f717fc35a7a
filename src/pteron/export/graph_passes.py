"""Exported program -> exported program, before lowering: decomposed, without writes.

A program that writes to buffers or inputs becomes one that takes their old values and returns the new ones:
ExecuTorch supports a written buffer only if all its users are in one delegate. `runtime/kept_states.py` makes
states of these inputs and outputs again.
"""

from __future__ import annotations

import functools
import itertools
import math
import operator
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pteron.errors import LoweringError
from pteron.export.decompositions import own_decompositions
from pteron.export.gradients import gradient_decompositions

if TYPE_CHECKING:
    import torch
    from torch.export import ExportedProgram


@dataclass(frozen=True)
class Functional:
    """A program without writes. Its inputs are the states, then the original inputs; its outputs are the new
    states, then the new values of written inputs, then the original outputs."""

    exported: ExportedProgram
    states: tuple[str, ...]  # names of buffers
    written: tuple[int, ...]  # positions of written inputs


def make_functional(decomposed: ExportedProgram) -> Functional:
    """The program with its writes as outputs, and with copies of returned constants. Changes its argument."""
    from torch.export.graph_signature import InputKind, OutputKind

    signature = decomposed.graph_signature
    inputs = [spec.arg.name for spec in signature.input_specs if spec.kind is InputKind.USER_INPUT]
    written = tuple(inputs.index(name) for name in signature.user_inputs_to_mutate.values())
    names = list(signature.buffers_to_mutate.values())
    if names or written:
        _make_inputs(decomposed, names)
        for output in signature.output_specs:
            if output.kind in (OutputKind.BUFFER_MUTATION, OutputKind.USER_INPUT_MUTATION):
                output.kind, output.target = OutputKind.USER_OUTPUT, None
    # ExecuTorch stores structures too, but not those of every class; CompiledModule handles them.
    _describe_flat(decomposed, len(names) + len(inputs), len(signature.output_specs))
    _copy_returned_constants(decomposed)
    _merge_returned_clones(decomposed)
    _remove_texts(decomposed)
    return Functional(decomposed, tuple(names), written)


def written_buffers(exported: ExportedProgram) -> list[str]:
    """The names of buffers that a program writes to."""
    if not _is_written(exported):
        return []
    return list(exported.run_decompositions({}).graph_signature.buffers_to_mutate.values())


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


def _remove_texts(functional: ExportedProgram) -> None:
    """Return None in place of texts, which a program cannot return: the signature has them."""
    output, specs = functional.graph.output_node(), functional.graph_signature.output_specs
    returned = list(output.args[0])
    for position, value in enumerate(returned):
        if isinstance(value, str):
            returned[position] = specs[position].arg.value = None
    output.args = (tuple(returned),)
    functional.graph_module.recompile()


def _describe_flat(functional: ExportedProgram, inputs: int, outputs: int) -> None:
    """Let the program take and return flat tuples."""
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


def decompose(exported: ExportedProgram) -> ExportedProgram:
    """The program without writes, in Core ATen operators and a few others that Pteron has."""
    import torch
    from executorch.exir.tracer import _default_decomposition_table
    from torch.export._remove_effect_tokens_pass import _remove_effect_tokens

    from pteron.export.complex_numbers import remove_complex
    from pteron.export.recurrence import recurrent_decompositions
    from pteron.export.transformer_operators import encoder_layer, multi_head_attention

    aten = torch.ops.aten
    table = _default_decomposition_table()
    for kept in _kept():
        table.pop(kept, None)
    table[aten.scaled_dot_product_attention.default] = _attention
    table[aten.linear.default] = _linear
    table[aten.matmul.default] = _matmul
    table.update(own_decompositions())
    table.update(gradient_decompositions())
    table.update(recurrent_decompositions())
    table[aten.split_with_sizes.default] = _split_with_sizes
    table[aten.unbind.int] = _unbind
    table[aten._native_multi_head_attention.default] = multi_head_attention
    table[aten._transformer_encoder_layer_fwd.default] = encoder_layer
    with _operators_listed_once():
        decomposed = _remove_effect_tokens(exported.run_decompositions(table))
    _order_strided(decomposed)
    remove_complex(decomposed)
    _remove_assertions(decomposed)
    _multiply_powers(decomposed)
    return decomposed


@contextmanager
def _operators_listed_once() -> Iterator[None]:
    """PyTorch walks through all C++ operators once per namespace of operators, twice: a third of the time
    that a small module takes to compile."""
    from torch._export import utils

    walk = getattr(utils, "_materialize_cpp_cia_ops", None)
    if walk is None:  # a PyTorch without it
        yield
        return
    utils._materialize_cpp_cia_ops = functools.cache(walk)
    try:
        yield
    finally:
        utils._materialize_cpp_cia_ops = walk


def _order_strided(decomposed: ExportedProgram) -> None:
    """Give `as_strided` its input in the order of its memory: tensors of a program have no strides."""
    import torch

    aten = torch.ops.aten
    for node in decomposed.graph.find_nodes(op="call_function", target=aten.as_strided.default):
        source, size, stride, *offset = node.args
        value = source.meta["val"]
        first = 0 if not offset or offset[0] is None else offset[0] - value.storage_offset()
        if not value.is_contiguous():
            order = sorted(range(value.ndim), key=lambda dim: -value.stride(dim))  # stable
            ordered = value.permute(order)
            if not ordered.is_contiguous():
                raise LoweringError("as_strided of a tensor that is a part of a larger one")
            with decomposed.graph.inserting_before(node):
                source = decomposed.graph.call_function(aten.permute.default, (source, order))
            source.meta = {**node.meta, "val": ordered}
        node.args = (source, size, stride, first)
    decomposed.graph_module.recompile()


def _kept() -> tuple[Any, ...]:
    """Operators that are not decomposed, because Pteron has them."""
    import torch

    aten = torch.ops.aten
    return (
        aten.hardshrink.default,
        aten.hardswish.default,
        aten.pixel_shuffle.default,
        aten.reflection_pad1d.default,
        aten.reflection_pad2d.default,
        aten.reflection_pad3d.default,
        aten.replication_pad1d.default,
        aten.replication_pad2d.default,
        aten.replication_pad3d.default,
        aten.upsample_nearest2d.vec,
    )


def _remove_assertions(decomposed: ExportedProgram) -> None:
    """Remove checks of values: no kernel can stop a program."""
    import torch

    aten = torch.ops.aten
    assertions = (
        aten._assert_async.default,
        aten._assert_async.msg,
        aten._assert_scalar.default,
        aten._assert_tensor_metadata.default,
        aten._linalg_check_errors.default,
        aten.sym_constrain_range.default,
        aten.sym_constrain_range_for_size.default,
    )
    for module in decomposed.graph_module.modules():  # the program and its branches of control flow
        if isinstance(module, torch.fx.GraphModule):
            for node in reversed(module.graph.nodes):
                if node.target in assertions:
                    module.graph.erase_node(node)
            module.graph.eliminate_dead_code()
            module.recompile()


def _multiply_powers(decomposed: ExportedProgram) -> None:
    """Products for powers of sizes, which ExecuTorch has no function for."""
    graph = decomposed.graph
    for node in graph.find_nodes(op="call_function", target=operator.pow):
        base, exponent = node.args
        if not isinstance(exponent, int) or exponent < 1:
            continue
        product = base
        with graph.inserting_before(node):
            for count in range(2, exponent + 1):
                product = graph.call_function(operator.mul, (product, base))
                product.meta = {**node.meta, "val": base.meta["val"] ** count}
        node.replace_all_uses_with(product)
        graph.erase_node(node)
    decomposed.graph_module.recompile()


def _split_with_sizes(x: torch.Tensor, sizes: Sequence[int], dim: int = 0) -> list[torch.Tensor]:
    """As slices: ExecuTorch fixes the dynamic dims of a split at their example sizes."""
    starts = itertools.accumulate(sizes, initial=0)
    return [x.narrow(dim, start, size) for start, size in zip(starts, sizes, strict=False)]


def _unbind(x: torch.Tensor, dim: int = 0) -> list[torch.Tensor]:
    return [x.select(dim, position) for position in range(x.shape[dim])]


def _linear(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None = None) -> Any:
    """A layer on a matrix, as fusions with quantized weights expect it. PyTorch's own decomposition copies
    the weight for each batch of a strided input."""
    import torch

    if x.ndim == 2:
        return NotImplemented
    rows = torch.ops.aten.linear.default(x.reshape(-1, x.shape[-1]), weight, bias)
    return rows.reshape(*x.shape[:-1], weight.shape[0])


def _matmul(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """PyTorch's own decomposition copies a matrix for each batch of a strided input."""
    import torch

    if b.ndim == 1:
        return _matmul(a, b[:, None]).squeeze(-1)
    if a.ndim == 1:
        return _matmul(a[None], b).squeeze(-2)
    if b.ndim == 2:
        return torch.mm(a.reshape(-1, a.shape[-1]), b).reshape(*a.shape[:-1], b.shape[-1])
    batch = torch.broadcast_shapes(a.shape[:-2], b.shape[:-2])
    left, right = (each.expand(*batch, *each.shape[-2:]).reshape(-1, *each.shape[-2:]) for each in (a, b))
    return torch.bmm(left, right).reshape(*batch, a.shape[-2], b.shape[-1])


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
    """softmax(scale · query · keyᵀ + mask) · value; a row with all keys masked gives zeros. PyTorch's own
    decomposition leaves operators to the host."""
    import torch

    if dropout_p:
        return NotImplemented
    if enable_gqa:
        key, value = (_repeated(each, query.shape[-3] // each.shape[-3]) for each in (key, value))
    if is_causal:
        shape = query.shape[-2], key.shape[-2]
        attn_mask = torch.ones(shape, dtype=torch.bool, device=query.device).tril()
    factor = 1 / math.sqrt(query.shape[-1]) if scale is None else scale
    scores = (query * factor) @ key.transpose(-2, -1)
    if attn_mask is None:
        return torch.softmax(scores, -1) @ value
    if attn_mask.dtype == torch.bool:
        scores = torch.where(attn_mask, scores, torch.full_like(scores, -math.inf))
    else:
        scores = scores + attn_mask
    weights = torch.softmax(scores, -1)
    if not is_causal:  # a causal mask leaves each row one key
        is_masked = scores.amax(-1, keepdim=True) == -math.inf
        weights = torch.where(is_masked, torch.zeros_like(weights), weights)
    return weights @ value


def _repeated(heads: torch.Tensor, times: int) -> torch.Tensor:
    """Each head of keys or values, as often as query heads share it."""
    return heads if times == 1 else heads.repeat_interleave(times, -3)


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


def _merge_returned_clones(exported: ExportedProgram) -> None:
    """Return a value twice in place of the value and its clone: delegates drop clones, and would have fewer
    outputs than they are called with."""
    import torch

    graph, specs = exported.graph, exported.graph_signature.output_specs
    output = graph.output_node()
    returned = list(output.args[0])
    for index, node in enumerate(returned):
        while getattr(node, "target", None) is torch.ops.aten.clone.default and node.args[0] in returned:
            node = returned[index] = node.args[0]
            specs[index].arg.name = node.name
    output.args = (tuple(returned),)
    graph.eliminate_dead_code()
    exported.graph_module.recompile()
