"""An exported program -> the bytes of a .pte whose operators VulkanPartitioner gave to the GPU."""

from __future__ import annotations

import functools
import logging
import warnings
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

from pteron.errors import InputError

if TYPE_CHECKING:
    from torch.export import ExportedProgram
    from torch.fx import Node

_DROPOUTS = {"dropout", "alpha_dropout", "feature_dropout", "feature_alpha_dropout"}
_RANDOM_IN_TRAINING = {f"aten.{name}.default": 2 for name in _DROPOUTS}  # which argument says `train`
_TRAINING_ARGUMENTS = {**_RANDOM_IN_TRAINING, "aten.batch_norm.default": 5}


@dataclass(frozen=True)
class Options:
    """How a program is lowered."""

    force_fp16: bool = False  # f32 tensors inside delegates are f16; inputs and outputs stay f32


def exporting() -> AbstractContextManager[object]:
    """Hold Dynamo's own lock: the exporters of PyTorch and ExecuTorch change global state while they work,
    and must meet neither each other nor Dynamo's tracing in another thread."""
    from torch._dynamo.convert_frame import compile_lock

    return cast("AbstractContextManager[object]", compile_lock)


def lower(exported: ExportedProgram, options: Options) -> bytes:
    """Let the partitioner choose what the GPU runs, and write the program. It stays as it is.

    Pteron resizes every operator. Where ExecuTorch cannot write a program with dynamic dims like that, the
    GPU gets those operators alone that ExecuTorch's own runtime resizes.
    """
    with exporting(), _quiet():
        remember_patterns()
        chosen = {"force_fp16": options.force_fp16}
        try:
            return _write(exported, chosen)
        except Exception:
            if exported.range_constraints:
                with suppress(Exception):
                    return _write(exported, {**chosen, "require_dynamic_shapes": True})
            raise


def _write(exported: ExportedProgram, chosen: dict[str, bool]) -> bytes:
    """The program, partitioned with these options."""
    from executorch.exir import to_edge_transform_and_lower

    edge = to_edge_transform_and_lower(exported, partitioner=[_partitioner(chosen)])
    return cast(bytes, edge.to_executorch().buffer)


def check_inference(exported: ExportedProgram) -> None:
    """Refuse what only training does: it is random, or changes with every batch."""
    for node in exported.graph.nodes:
        position = _TRAINING_ARGUMENTS.get(str(node.target))
        is_training = position is not None and len(node.args) > position and node.args[position] is True
        if is_training and not _has_no_running_statistics(node):
            raise InputError(
                f"{node.target} works as in training, Pteron only in inference: call eval() on the module"
            )


def _has_no_running_statistics(node: Node) -> bool:
    """Batch norm without them takes every batch's own, in inference too."""
    return str(node.target) == "aten.batch_norm.default" and node.args[3] is None


def check_bounds(exported: ExportedProgram) -> None:
    """Refuse dynamic dims without a maximum: memory is planned for it, and ExecuTorch would invent one."""
    from torch.utils._sympy.numbers import int_oo

    for symbol, range in exported.range_constraints.items():
        if range.upper >= int_oo:
            raise InputError(
                f"the dynamic dim {symbol} has no upper bound; give one: torch.export.Dim('name', max=512)"
            )


@contextmanager
def _quiet() -> Iterator[None]:
    """ExecuTorch logs each operator, and warns of what its users cannot change."""
    level = logging.root.level
    import executorch.backends.vulkan.partitioner.vulkan_partitioner  # noqa: F401  # it sets the level

    logging.root.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.root.setLevel(level)


def remember_patterns() -> None:
    """Let ExecuTorch export the patterns that it fuses once in a process: they take longer than most models,
    and are made twice at each lowering."""
    from executorch.backends.vulkan.patterns import fusable_patterns

    for entry in fusable_patterns.values():
        if entry.get_graphs_fn is not None and not hasattr(entry.get_graphs_fn, "cache_info"):
            entry.get_graphs_fn = functools.cache(_keeping_compiled(entry.get_graphs_fn))


def _keeping_compiled(make_patterns: Callable[[], Any]) -> Callable[[], Any]:
    """Some patterns are exported in a mode that first frees all that Dynamo compiled in this process: others
    would compile again, and threads that run such code crash. They need no such reset."""
    import torch._dynamo as dynamo

    def make() -> Any:
        reset, dynamo.reset = dynamo.reset, lambda: None
        try:
            return make_patterns()
        finally:
            dynamo.reset = reset

    return make


def _partitioner(chosen: dict[str, bool]) -> Any:
    """VulkanPartitioner, without delegates that only give integers: ExecuTorch cannot write these."""
    from executorch.backends.vulkan.partitioner.vulkan_partitioner import VulkanPartitioner

    class TensorPartitioner(VulkanPartitioner):  # type: ignore[misc]  # untyped
        def partition(self, exported_program: ExportedProgram) -> Any:
            result = super().partition(exported_program)
            nodes = result.tagged_exported_program.graph.nodes
            gives_tensors = {tag for node in nodes for tag in _given_to_others(node)}
            for node in nodes:
                if node.meta.get("delegation_tag", None) not in {*gives_tensors, None}:
                    del node.meta["delegation_tag"]
            result.partition_tags = {
                tag: spec for tag, spec in result.partition_tags.items() if tag in gives_tensors
            }
            return result

    return TensorPartitioner(chosen)


def _given_to_others(node: Node) -> set[str]:
    """The delegate of a node whose value is, or has, a tensor that is used outside it."""
    tag = node.meta.get("delegation_tag")
    is_integer = not hasattr(node.meta.get("val"), "shape") and not isinstance(
        node.meta.get("val"), (list, tuple)
    )
    if tag is None or node.op != "call_function" or is_integer:
        return set()
    return {tag} if any(user.meta.get("delegation_tag") != tag for user in node.users) else set()


def returned_constants(exported: ExportedProgram) -> list[int]:
    """The outputs, by position, that are parameters or buffers."""
    signature = exported.graph_signature
    constants = {
        *signature.inputs_to_parameters,
        *signature.inputs_to_buffers,
        *signature.inputs_to_lifted_tensor_constants,
    }
    returned = exported.graph.output_node().args[0]
    return [index for index, node in enumerate(returned) if getattr(node, "name", None) in constants]


def copy_returned_constants(exported: ExportedProgram) -> None:
    """Return copies of parameters and buffers: the partitioner cannot place a constant that is an output."""
    import torch

    graph, specs = exported.graph, exported.graph_signature.output_specs
    output = graph.output_node()
    returned = list(output.args[0])
    for index in returned_constants(exported):
        with graph.inserting_before(output):
            copy = graph.call_function(torch.ops.aten.clone.default, (returned[index],))
            copy.meta = dict(returned[index].meta)
        returned[index] = copy
        specs[index].arg.name = copy.name
    output.args = (tuple(returned),)
    exported.graph_module.recompile()
