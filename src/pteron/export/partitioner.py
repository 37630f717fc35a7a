"""Which operators of an edge program run on the GPU: those that Pteron's planner can plan.

`Partitioner` asks the planner about each node, by planning a graph of that node alone. The planner's error is
the reason why a node stays on the host.
"""

from __future__ import annotations

import importlib
import operator
from collections.abc import Collection, Iterator, Mapping
from functools import partial
from typing import Any

import torch
from executorch.backends.transforms.addmm_mm_to_linear import AddmmToLinearTransform
from executorch.backends.transforms.fuse_view_copy import FuseViewCopyTransform
from executorch.backends.vulkan import patterns
from executorch.backends.vulkan._passes import (
    FoldQDQPass,
    FuseQuantizedOpsTransform,
    RemoveRedundantOpsTransform,
    insert_prepack_nodes,
)
from executorch.backends.vulkan._passes.fuse_patterns import FusePatternsPass
from executorch.backends.vulkan._passes.remove_asserts import RemoveAssertsTransform
from executorch.backends.vulkan.op_registry import handles_own_prepacking, has_impl
from executorch.backends.vulkan.serialization.vulkan_graph_builder import VkGraphBuilder, is_param_node
from executorch.backends.vulkan.serialization.vulkan_graph_serialize import serialize_vulkan_graph
from executorch.backends.vulkan.vulkan_preprocess import FuseClampPass, apply_passes, parse_compile_spec
from executorch.backends.xnnpack._passes import FuseBatchNormPass
from executorch.exir.backend import partitioner as exir
from executorch.exir.backend.backend_details import BackendDetails, CompileSpec, PreprocessResult
from executorch.exir.backend.utils import DelegateMappingBuilder, tag_constant_data, tag_mutated_buffer
from executorch.exir.graph_module import get_control_flow_submodules
from executorch.exir.memory_planning import MemoryPlanningAlgorithmSuite, greedy
from executorch.exir.passes import MemoryPlanningPass
from executorch.exir.passes.executorch_prim_ops_registry import is_sym_op
from executorch.exir.passes.spec_prop_pass import make_spec
from executorch.exir.passes.sym_shape_eval_pass import ConstraintBasedSymShapeEvalPass
from torch.export import ExportedProgram
from torch.export._remove_auto_functionalized_pass import unsafe_remove_auto_functionalized_pass
from torch.fx.passes.infra.partitioner import CapabilityBasedPartitioner
from torch.fx.passes.operator_support import OperatorSupportBase
from torch.utils._pytree import tree_map
from torch.utils._sympy.numbers import int_oo
from torch.utils._sympy.value_ranges import bound_sympy

from pteron.dtypes import DType
from pteron.errors import PteronError, UnsupportedError
from pteron.graph import Graph, Node, SymInt, Tensor, Value, ValueList
from pteron.ops import Target
from pteron.passes import prepare
from pteron.passes.resolve import is_available
from pteron.plan.compiled import Compiled

# 64-bit types become 32-bit types, as in VulkanBackend.
_DTYPES = {
    torch.bool: DType.BOOL,
    torch.uint8: DType.U8,
    torch.int8: DType.I8,
    torch.int16: DType.I16,
    torch.int32: DType.I32,
    torch.int64: DType.I32,
    torch.float16: DType.F16,
    torch.float32: DType.F32,
    torch.float64: DType.F32,
}
# A large device: whether a tensor fits the user's is found when the program is loaded.
_TARGET = Target(shader_f16=True, is_cpu=False, binding_bytes_max=(1 << 32) - 4)

# ExecuTorch's pass raises a KeyError for operators that Vulkan does not have: they do not pack constants.
importlib.import_module(insert_prepack_nodes.__module__).handles_own_prepacking = (  # type: ignore[attr-defined]
    lambda target: has_impl(target) and handles_own_prepacking(target)
)


class PteronBackend(BackendDetails):  # type: ignore[misc]  # untyped
    """Writes a delegate as VulkanBackend does, without what only Vulkan's textures need."""

    @classmethod
    def preprocess(cls, program: ExportedProgram, specs: list[CompileSpec]) -> PreprocessResult:
        options = parse_compile_spec(specs)
        program = unsafe_remove_auto_functionalized_pass(program)
        program = apply_passes(
            program,
            [
                AddmmToLinearTransform(),
                *_batch_norm_passes(program),
                FusePatternsPass(),
                FuseClampPass(),
                RemoveRedundantOpsTransform(),
                *_quantization_passes(program),
                FuseViewCopyTransform(),
                RemoveAssertsTransform(),
            ],
        )
        _annotate(program.graph)
        program = apply_passes(program, [insert_prepack_nodes, ConstraintBasedSymShapeEvalPass()])
        program.graph_module.encounter_to_out_var_failure = True  # plans memory without out variants
        suite = MemoryPlanningAlgorithmSuite([partial(greedy, allow_overlapping_allocations=False)])
        program = apply_passes(program, [MemoryPlanningPass(memory_planning_algo=suite)])
        mapping = DelegateMappingBuilder(generated_identifiers=True)
        builder = _GraphBuilder(program, mapping, force_fp16=options.get("force_fp16", False))
        graph = builder.build_graph()
        return PreprocessResult(
            processed_bytes=serialize_vulkan_graph(graph, builder.const_tensors, []),
            debug_handle_map=mapping.get_delegate_mapping(),
            data_store_output=builder.named_data_store.get_named_data_store_output(),
        )


class _GraphBuilder(VkGraphBuilder):  # type: ignore[misc]  # untyped
    """Keeps inputs that nothing reads after fusions: calls of the delegate pass them."""

    def process_placeholder_node(self, node: torch.fx.Node) -> None:
        if node.users or is_param_node(self.program, node):
            super().process_placeholder_node(node)
        else:
            self.input_ids.append(self.create_node_value(node))


def _batch_norm_passes(program: ExportedProgram) -> list[Any]:
    """Passes trace a program anew, which takes long: they run if they have something to do."""
    has = any("batch_norm" in str(node.target) for node in program.graph.nodes)
    return [FuseBatchNormPass(program), AddmmToLinearTransform()] if has else []


def _quantization_passes(program: ExportedProgram) -> list[Any]:
    has = any("quant" in str(node.target) for node in program.graph.nodes)
    return [FuseQuantizedOpsTransform(), FoldQDQPass()] if has else []


def _annotate(graph: torch.fx.Graph) -> None:
    """Give each node the description of its tensors that ExecuTorch's later passes use."""
    for node in graph.nodes:
        if node.op == "output":
            node.meta["spec"] = tree_map(lambda each: getattr(each, "meta", {}).get("spec"), node.args[0])
        elif node.target is operator.getitem:
            node.meta["spec"] = node.args[0].meta["spec"][node.args[1]]
        else:
            node.meta["spec"] = tree_map(make_spec, node.meta.get("val"))


class Partitioner(exir.Partitioner):  # type: ignore[misc]  # untyped
    """Delegates every operator that Pteron can run. After `partition`, `reasons` has each other node, and why
    it stays on the host. `large_constants` are the names of constants with integers beyond 32 bits:
    ExecuTorch partitions a program without its values."""

    def __init__(self, *, force_fp16: bool = False, large_constants: Collection[str] = ()) -> None:
        self._large_constants = large_constants
        spec = CompileSpec("force_fp16", force_fp16.to_bytes(1, "little"))
        self.delegation_spec = exir.DelegationSpec(PteronBackend.__name__, [spec])
        self.reasons: dict[torch.fx.Node, str] = {}

    def partition(self, exported_program: ExportedProgram) -> exir.PartitionResult:
        self.reasons = {}
        tags: list[str] = []
        self._tag(exported_program.graph_module, tags, self._large_integers(exported_program))
        tag_constant_data(exported_program)
        tag_mutated_buffer(exported_program)
        specs = dict.fromkeys(tags, self.delegation_spec)
        return exir.PartitionResult(tagged_exported_program=exported_program, partition_tags=specs)

    def _large_integers(self, program: ExportedProgram) -> set[torch.fx.Node]:
        """Constants with integers beyond 32 bits, and integers that are computed from them."""
        specs = program.graph_signature.input_specs
        pairs = zip(program.graph.find_nodes(op="placeholder"), specs, strict=True)
        found = {node for node, spec in pairs if spec.target in self._large_constants}
        for node in program.graph.nodes:
            if (
                node.op == "call_function"
                and not found.isdisjoint(node.all_input_nodes)
                and _gives_int64(node)
            ):
                found.add(node)
        return found

    def _tag(self, module: torch.fx.GraphModule, tags: list[str], too_large: set[torch.fx.Node]) -> None:
        """Tag the nodes of each delegate, also inside branches and bodies of loops."""
        support = _Support(module, too_large)
        partitioner = CapabilityBasedPartitioner(module, support, allows_single_node_partition=True)
        for part in partitioner.propose_partitions():
            if _returns_tensors(part.nodes):
                tags.append(f"tag{len(tags)}")
                for node in part.nodes:
                    node.meta["delegation_tag"] = tags[-1]
        inner = get_control_flow_submodules(module)
        for _, body, _ in inner:
            self._tag(body, tags, set())
        for node in module.graph.nodes:
            reason = support.reason(node)
            if reason is not None and not _is_control_flow(node):
                self.reasons[node] = reason


def _is_control_flow(node: torch.fx.Node) -> bool:
    if node.target is operator.getitem:
        node = node.args[0]
    return isinstance(node.target, torch._ops.HigherOrderOperator)


class _Support(OperatorSupportBase):  # type: ignore[misc]  # untyped
    def __init__(self, module: torch.fx.GraphModule, too_large: set[torch.fx.Node]) -> None:
        self._too_large = too_large
        matches = patterns.get_all_fusable_subgraphs(module)
        self._fused = {node for match in matches for node in match.all_nodes}
        self._reasons: dict[torch.fx.Node, str | None] = {}
        self._of_calls: dict[str, str | None] = {}  # layers repeat calls of equal shapes

    def is_node_supported(self, submodules: Mapping[str, torch.nn.Module], node: torch.fx.Node) -> bool:
        return node.op == "call_function" and self.reason(node) is None

    def reason(self, node: torch.fx.Node) -> str | None:
        """Why a node cannot run on the GPU; None if it can, or calls nothing."""
        if node.op != "call_function":
            return None
        if node not in self._reasons:
            self._reasons[node] = self._why(node)
        return self._reasons[node]

    def _why(self, node: torch.fx.Node) -> str | None:
        if node in self._fused:
            return None
        if node.target is operator.getitem:
            return self.reason(node.args[0])
        if not self._too_large.isdisjoint(node.all_input_nodes):
            return "it may have integers beyond 32 bits, which the GPU does not have"
        call = _described(node)
        if call not in self._of_calls:
            try:
                _plan(node)
                self._of_calls[call] = None
            except PteronError as error:
                self._of_calls[call] = str(error)
        return self._of_calls[call]


def large_constants(program: ExportedProgram) -> set[str]:
    """The names of constants with integers beyond 32 bits."""
    values: dict[str, Any] = {**program.state_dict, **program.constants}
    integers = {
        name: value
        for name, value in values.items()
        if type(value) is torch.Tensor and value.dtype is torch.int64 and value.numel()
    }
    return {name for name, value in integers.items() if value.min() < -(1 << 31) or value.max() >= 1 << 31}


def _gives_int64(node: torch.fx.Node) -> bool:
    return any(getattr(each, "dtype", None) is torch.int64 for each in _leaves(node.meta.get("val")))


def _described(node: torch.fx.Node) -> str:
    """A call with the types and shapes of its arguments and results, in place of their names."""

    def value(of: Any) -> object:
        if isinstance(of, torch.Tensor):
            return of.dtype, of.shape
        return tuple(map(value, of)) if isinstance(of, (list, tuple)) else of

    arguments = torch.fx.map_arg((node.args, node.kwargs), lambda each: value(each.meta.get("val")))
    return f"{node.target} {arguments} {value(node.meta.get('val'))}"


def _returns_tensors(nodes: Any) -> bool:
    """Whether a delegate of these nodes returns a tensor: ExecuTorch cannot write one that returns only
    integers."""
    return any(
        isinstance(node.meta.get("val"), torch.Tensor) and any(user not in nodes for user in node.users)
        for node in nodes
    )


def why_not_on_gpu(node: torch.fx.Node) -> str | None:
    """Why a node of an ATen graph cannot run on the GPU, or None."""
    try:
        _plan(node)
    except PteronError as error:
        return str(error)
    return None


def _plan(node: torch.fx.Node) -> None:
    """Plan a node, as a graph of its own, at its maximum shapes. Raises the planner's error."""
    is_aten = isinstance(node.target, torch._ops.OpOverload) and not is_sym_op(node.target)
    name = str(node.target) if is_aten else node.target.__name__
    if not is_available(name):
        raise UnsupportedError(f"Pteron has no operator {name}")
    values = _Values()
    outputs = tuple(values.of(each) for each in _leaves(node.meta["val"]))
    if not any(isinstance(output, Tensor) for output in outputs):
        return  # live integers are computed on the host
    arguments = tuple(values.of(argument) for argument in _arguments(node))
    written = outputs[0] if isinstance(node.meta["val"], torch.Tensor) else values.list(outputs)
    graph = Graph(name, (Node(0, name, (*arguments, written)),), tuple(values.inputs.values()), outputs)
    Compiled(prepare(graph), _TARGET).plan_at_maximum()


def _leaves(value: Any) -> tuple[Any, ...]:
    return tuple(value) if isinstance(value, (list, tuple)) else (value,)


def _arguments(node: torch.fx.Node) -> Iterator[Any]:
    """A node's arguments by position, defaults included, as ExecuTorch writes them."""
    for position, argument in enumerate(node.target._schema.arguments):
        if position < len(node.args) and not argument.kwarg_only:
            yield node.args[position]
        else:
            yield node.kwargs.get(argument.name, argument.default_value)


class _Values:
    """Makes the values of a graph of one node."""

    def __init__(self) -> None:
        self.inputs: dict[torch.fx.Node, Any] = {}
        self._count = 0

    def of(self, value: Any) -> Any:
        if isinstance(value, torch.fx.Node):
            if value not in self.inputs:
                self.inputs[value] = self.of(value.meta["val"])
            return self.inputs[value]
        if isinstance(value, torch.Tensor):
            if value.dtype not in _DTYPES:
                advice = "; use module.float() or module.half()" if value.dtype is torch.bfloat16 else ""
                raise UnsupportedError(f"Pteron has no tensors of {value.dtype}{advice}")
            return Tensor(self._id(), _DTYPES[value.dtype], tuple(map(largest_size, value.shape)))
        if isinstance(value, torch.SymInt):
            return SymInt(self._id())
        if isinstance(value, (list, tuple)):
            return self.list(tuple(map(self.of, value)))
        return value if isinstance(value, (bool, int, float, str)) else None  # dtypes, devices and layouts

    def list(self, items: tuple[Any, ...]) -> Value:
        is_plain = all(isinstance(item, (bool, int, float)) for item in items)
        return items if is_plain else ValueList(self._id(), items)

    def _id(self) -> int:
        self._count += 1
        return self._count


def largest_size(size: int | torch.SymInt) -> int:
    """The maximum of a dim; an error if it has none."""
    if isinstance(size, int):
        return size
    bounds = bound_sympy(size.node.expr, size.node.shape_env.var_to_range)
    if bounds.upper >= int_oo:
        raise UnsupportedError(f"a dim, {size}, without a maximum")
    return int(bounds.upper)
