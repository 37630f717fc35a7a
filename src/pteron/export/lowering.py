"""An exported program -> the bytes of a .pte, with GPU delegates that VulkanPartitioner chose."""

from __future__ import annotations

import functools
import logging
import warnings
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from typing import TYPE_CHECKING, Any, cast

from pteron.errors import InputError

if TYPE_CHECKING:
    from torch.export import ExportedProgram
    from torch.fx import Node

_DROPOUTS = {"dropout", "alpha_dropout", "feature_dropout", "feature_alpha_dropout"}
# The position of the argument `train`.
_TRAINING_ARGUMENTS = {**{f"aten.{name}.default": 2 for name in _DROPOUTS}, "aten.batch_norm.default": 5}


def exporting() -> AbstractContextManager[object]:
    """Hold Dynamo's lock: the exporters of PyTorch and ExecuTorch change global state, so they must not run
    at the same time as each other or as Dynamo's tracing in another thread."""
    from torch._dynamo.convert_frame import compile_lock

    return cast("AbstractContextManager[object]", compile_lock)


def lower(exported: ExportedProgram, force_fp16: bool = False) -> bytes:
    """Partition and write the program; leaves `exported` unchanged. `force_fp16`: f32 tensors inside
    delegates are f16; inputs and outputs stay f32.

    Pteron can resize every operator. If ExecuTorch fails to write a program with dynamic dims that way, only
    the operators that ExecuTorch's own runtime can resize are delegated.
    """
    with exporting(), _quiet():
        cache_patterns()
        chosen = {"force_fp16": force_fp16}
        try:
            return _write(exported, chosen)
        except Exception:
            if exported.range_constraints:
                with suppress(Exception):
                    return _write(exported, {**chosen, "require_dynamic_shapes": True})
            raise


def _write(exported: ExportedProgram, chosen: dict[str, bool]) -> bytes:
    from executorch.exir import to_edge_transform_and_lower

    edge = to_edge_transform_and_lower(exported, partitioner=[_partitioner(chosen)])
    return cast(bytes, edge.to_executorch().buffer)


def check_inference(exported: ExportedProgram) -> None:
    """Raise for operators in training mode: they are random, or depend on the batch."""
    for node in exported.graph.nodes:
        position = _TRAINING_ARGUMENTS.get(str(node.target))
        if position is None or len(node.args) <= position or node.args[position] is not True:
            continue
        # A batch norm without running statistics uses the batch's statistics in inference too.
        if str(node.target) != "aten.batch_norm.default" or node.args[3] is not None:
            raise InputError(
                f"{node.target} is in training mode; Pteron only runs inference: call eval() on the module"
            )


def check_bounds(exported: ExportedProgram) -> None:
    """Raise for dynamic dims without a maximum: memory is planned for the maximum."""
    from torch.utils._sympy.numbers import int_oo

    for symbol, range in exported.range_constraints.items():
        if range.upper >= int_oo:
            raise InputError(
                f"dynamic dim {symbol} has no maximum; give one: torch.export.Dim('name', max=512)"
            )


@contextmanager
def _quiet() -> Iterator[None]:
    """Silence ExecuTorch, which logs each operator and warns about its own code."""
    level = logging.root.level
    import executorch.backends.vulkan.partitioner.vulkan_partitioner  # noqa: F401  # its import sets the level

    logging.root.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.root.setLevel(level)


def cache_patterns() -> None:
    """Cache ExecuTorch's fusion patterns for the process: exporting them takes longer than most models, and
    ExecuTorch does it twice per lowering."""
    from executorch.backends.vulkan.patterns import fusable_patterns

    for entry in fusable_patterns.values():
        if entry.get_graphs_fn is not None and not hasattr(entry.get_graphs_fn, "cache_info"):
            entry.get_graphs_fn = functools.cache(_without_dynamo_reset(entry.get_graphs_fn))


def _without_dynamo_reset(make_patterns: Callable[[], Any]) -> Callable[[], Any]:
    """Disable `dynamo.reset` while patterns are exported: it would free all code that Dynamo compiled in this
    process, and crash threads that run such code. The patterns do not need it."""
    import torch._dynamo as dynamo

    def make() -> Any:
        reset, dynamo.reset = dynamo.reset, lambda: None
        try:
            return make_patterns()
        finally:
            dynamo.reset = reset

    return make


def _partitioner(chosen: dict[str, bool]) -> Any:
    """VulkanPartitioner without delegates that only return integers, which ExecuTorch cannot write."""
    from executorch.backends.vulkan.partitioner.vulkan_partitioner import VulkanPartitioner

    class TensorPartitioner(VulkanPartitioner):  # type: ignore[misc]  # untyped
        def partition(self, exported_program: ExportedProgram) -> Any:
            result = super().partition(exported_program)
            nodes = result.tagged_exported_program.graph.nodes
            returns_tensors = {tag for node in nodes for tag in _returned_by(node)}
            for node in nodes:
                if node.meta.get("delegation_tag", None) not in {*returns_tensors, None}:
                    del node.meta["delegation_tag"]
            result.partition_tags = {
                tag: spec for tag, spec in result.partition_tags.items() if tag in returns_tensors
            }
            return result

    return TensorPartitioner(chosen)


def _returned_by(node: Node) -> set[str]:
    """The tag of the delegate that returns this node's value, if the value is or contains a tensor."""
    tag, value = node.meta.get("delegation_tag"), node.meta.get("val")
    is_integer = not hasattr(value, "shape") and not isinstance(value, (list, tuple))
    if tag is None or node.op != "call_function" or is_integer:
        return set()
    return {tag} if any(user.meta.get("delegation_tag") != tag for user in node.users) else set()
