"""An exported program -> the bytes of a .pte, with GPU delegates that a partitioner chose."""

from __future__ import annotations

import functools
import json
import logging
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import asdict, dataclass
from operator import getitem
from typing import TYPE_CHECKING, Any, cast

from pteron.errors import InputError
from pteron.format.program import METADATA_KEY
from pteron.format.records import HostCall

if TYPE_CHECKING:
    import torch
    from torch.export import ExportedProgram
    from torch.fx import Graph, Node

PARTITIONERS = ("pteron", "vulkan", "webgpu")
_DROPOUTS = {"dropout", "alpha_dropout", "feature_dropout", "feature_alpha_dropout"}
# The position of the argument `train`.
_TRAINING_ARGUMENTS = {**{f"aten.{name}.default": 2 for name in _DROPOUTS}, "aten.batch_norm.default": 5}


def exporting() -> AbstractContextManager[object]:
    """Hold Dynamo's lock: the exporters of PyTorch and ExecuTorch change global state, so they must not run
    at the same time as each other or as Dynamo's tracing in another thread."""
    from torch._dynamo.convert_frame import compile_lock

    return cast("AbstractContextManager[object]", compile_lock)


@dataclass(frozen=True)
class Options:
    """How a program is lowered."""

    partitioner: str = "pteron"
    force_fp16: bool = False  # f32 tensors inside delegates are f16; inputs and outputs stay f32

    def __post_init__(self) -> None:
        if self.partitioner not in PARTITIONERS:
            raise InputError(f"partitioner={self.partitioner!r}: expected one of {', '.join(PARTITIONERS)}")


@dataclass(frozen=True)
class Lowered:
    """A partitioned program, with delegates."""

    edge: Any  # EdgeProgramManager
    partitioner: str
    host: list[HostCall]

    def write(self, metadata: Mapping[str, Any], data: Mapping[str, bytes]) -> bytes:
        """The bytes of the .pte, with `metadata` and named data in it."""
        with exporting(), quiet():
            kept = {**metadata, "partitioner": self.partitioner, "host": list(map(asdict, self.host))}
            for key, value in {**data, METADATA_KEY: json.dumps(kept).encode()}.items():
                self.edge._named_data_store.add_named_data(key, value)
            return cast(bytes, self.edge.to_executorch().buffer)


def lower(functional: ExportedProgram, options: Options) -> Lowered:
    """Partition a program without writes. Changes the program."""
    with exporting(), quiet():
        cache_patterns()
        if options.partitioner == "pteron":
            edge, partitioner = _for_pteron(functional, options)
        else:
            edge, partitioner = _for_executorch(functional, options)
        return Lowered(edge, options.partitioner, _host_calls(partitioner.reasons))


def _for_pteron(functional: ExportedProgram, options: Options) -> tuple[Any, Any]:
    from executorch.exir import EdgeProgramManager

    from pteron.export.edge import CONFIG, to_edge
    from pteron.export.partitioner import Partitioner, large_constants

    program = to_edge(functional)
    _make_buffers(program)
    edge = EdgeProgramManager(program, None, CONFIG)
    partitioner = Partitioner(force_fp16=options.force_fp16, large_constants=large_constants(program))
    with _patterns_of(edge.exported_program().graph):
        return edge.to_backend(partitioner), partitioner


def _make_buffers(program: ExportedProgram) -> None:
    """Make buffers of tensor constants: ExecuTorch gives each use of a shared constant its own input, and
    PyTorch cannot run a program with two inputs for one tensor constant."""
    from torch.export.graph_signature import InputKind

    for spec in program.graph_signature.input_specs:
        if spec.kind is InputKind.CONSTANT_TENSOR:
            spec.kind, spec.persistent = InputKind.BUFFER, False


def _for_executorch(functional: ExportedProgram, options: Options) -> tuple[Any, Any]:
    """A program that ExecuTorch's own runtime takes, which can resize some operators only."""
    from executorch.exir import to_edge_transform_and_lower

    is_dynamic = bool(functional.range_constraints)
    chosen = {"force_fp16": options.force_fp16, "require_dynamic_shapes": is_dynamic}
    partitioner = _executorch_partitioner(options.partitioner, chosen)
    return to_edge_transform_and_lower(functional, partitioner=[partitioner]), partitioner


def _host_calls(reasons: Mapping[Any, str]) -> list[HostCall]:
    calls = ((node.target, reason) for node, reason in reasons.items() if node.target is not getitem)
    counts = Counter((target.__name__, reason) for target, reason in calls)
    return [HostCall(operator, count, reason) for (operator, reason), count in counts.most_common()]


@contextmanager
def in_inference(module: torch.nn.Module) -> Iterator[None]:
    """The module in eval mode; restores the mode of each submodule."""
    training = [part for part in module.modules() if part.training]
    for part in training:
        part.training = False
    try:
        yield
    finally:
        for part in training:
            part.training = True


def check_inference(exported: ExportedProgram) -> None:
    """Raise for gradients, and for operators in training mode: they are random, or depend on the batch."""
    if exported.graph_signature.backward_signature is not None:
        raise InputError(
            "the exported program returns gradients; pteron.compile takes the forward program: what "
            "torch.export.export returns. pteron.load runs the gradients if ExecuTorch's exporter writes the "
            "program"
        )
    for node in exported.graph.nodes:
        position = _TRAINING_ARGUMENTS.get(str(node.target))
        if position is None or len(node.args) <= position or node.args[position] is not True:
            continue
        # A batch norm without running statistics uses the batch's statistics in inference too.
        if str(node.target) != "aten.batch_norm.default" or node.args[3] is not None:
            raise InputError(
                f"{node.target} is in training mode; Pteron only runs inference: call eval() on the module"
            )


@contextmanager
def quiet() -> Iterator[None]:
    """Silence PyTorch and ExecuTorch, which log each operator and warn about their own code; no gradients,
    for which PyTorch would trace the bodies of loops."""
    import torch

    level, disabled = logging.root.level, logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        with torch.no_grad(), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.root.setLevel(level)  # importing ExecuTorch sets it
        logging.disable(disabled)


def cache_patterns() -> None:
    """Cache ExecuTorch's fusion patterns for the process: exporting them takes longer than most models, and
    ExecuTorch does it twice per lowering."""
    from executorch.backends.vulkan.patterns import fusable_patterns

    for entry in fusable_patterns.values():
        if entry.get_graphs_fn is not None and not hasattr(entry.get_graphs_fn, "cache_info"):
            entry.get_graphs_fn = functools.cache(_without_dynamo_reset(entry.get_graphs_fn))


@contextmanager
def _patterns_of(graph: Graph) -> Iterator[None]:
    """Leave out patterns that are exported from modules, which takes seconds, if the graph cannot have them:
    all are rotary embeddings."""
    from executorch.backends.vulkan.patterns import fusable_patterns

    names = {node.target.__name__ for node in graph.nodes if node.op == "call_function"}
    if "aten.cat.default" in names and names & {"aten.neg.default", "aten.sub.Tensor"}:
        yield
        return
    entries = [entry for entry in fusable_patterns.values() if entry.get_graphs_fn is not None]
    known = [entry.get_graphs_fn for entry in entries]
    for entry in entries:
        entry.get_graphs_fn = list
    try:
        yield
    finally:
        for entry, get_graphs in zip(entries, known, strict=True):
            entry.get_graphs_fn = get_graphs


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


def _executorch_partitioner(name: str, chosen: dict[str, bool]) -> Any:
    """VulkanPartitioner, or WebGPUPartitioner around it, without delegates that only return integers, which
    ExecuTorch cannot write. `reasons` has the reason of each node that stays on the host."""
    from executorch.backends.vulkan.partitioner import vulkan_partitioner
    from executorch.backends.webgpu.partitioner import WebGPUPartitioner
    from executorch.exir.backend.partitioner import Partitioner

    class TensorPartitioner(Partitioner):  # type: ignore[misc]  # untyped
        def __init__(self) -> None:
            made = {"vulkan": vulkan_partitioner.VulkanPartitioner, "webgpu": WebGPUPartitioner}[name]
            self.inner = made(chosen)
            self.reasons: dict[Node, str] = {}

        def ops_to_not_decompose(self, program: ExportedProgram) -> Any:
            return self.inner.ops_to_not_decompose(program)

        def partition(self, program: ExportedProgram) -> Any:
            reasons: dict[Node, str] = {}

            def log_skip(_: object, node: Node, reason: str) -> None:
                if node.op == "call_function":
                    reasons[node] = f"{name} partitioner: {reason}"

            support = vulkan_partitioner.VulkanSupportedOperators
            logged, support.log_skip = support.log_skip, log_skip
            try:
                result = self.inner.partition(program)
            finally:
                support.log_skip = logged
            self.reasons = reasons
            return _without_integers(result)

    return TensorPartitioner()


def _without_integers(result: Any) -> Any:
    nodes = result.tagged_exported_program.graph.nodes
    returns_tensors = {tag for node in nodes for tag in _returned_by(node)}
    for node in nodes:
        if node.meta.get("delegation_tag", None) not in {*returns_tensors, None}:
            del node.meta["delegation_tag"]
    result.partition_tags = {
        tag: spec for tag, spec in result.partition_tags.items() if tag in returns_tensors
    }
    return result


def _returned_by(node: Node) -> set[str]:
    """The tag of the delegate that returns this node's value, if the value is or contains a tensor."""
    tag, value = node.meta.get("delegation_tag"), node.meta.get("val")
    is_integer = not hasattr(value, "shape") and not isinstance(value, (list, tuple))
    if tag is None or node.op != "call_function" or is_integer:
        return set()
    return {tag} if any(user.meta.get("delegation_tag") != tag for user in node.users) else set()
