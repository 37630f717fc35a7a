"""One recipe: ExecuTorch's program of it, through `pteron.load` -> a StockResult."""

# mypy: disable-error-code="misc,no-any-return,untyped-decorator"
# (torch is untyped to mypy)

from __future__ import annotations

import copy
import re
import statistics
import time
from collections import Counter
from collections.abc import Sequence
from typing import Any

import torch
from executorch.backends.vulkan.partitioner.vulkan_partitioner import VulkanPartitioner
from executorch.backends.webgpu.partitioner.partitioner import WebGPUPartitioner
from executorch.exir import to_edge_transform_and_lower
from torch import nn
from torch.utils._pytree import tree_map_only

import pteron
from pteron.export.lowering import cache_patterns
from pteron.format.records import KernelCall
from zoo.measure import first_line, largest_error, randomize, tensors
from zoo.result import Result, StockResult
from zoo.stock.recipe import STREAMS, Recipe

Call = tuple[Any, ...]
_PARTITIONERS = {"Vulkan": VulkanPartitioner, "WebGPU": WebGPUPartitioner}
_TIMED_CALLS = 5
_NO_WORK = "et_vk.prepack.default"  # uploads a weight
# Operators that round to integers take and give float32 in PyTorch, whatever is around them.
_QUANTISERS = ("quantized_decomposed", "torchao")


def measure(name: str, recipe: Recipe) -> StockResult:
    """Export, load and call. Errors become results."""
    result = StockResult(name, "right", is_half=recipe.is_half, is_quantized=recipe.quantize is not None)
    try:
        module, calls = make(recipe)
        single = run_as(torch.float32, module, calls)
    except Exception as error:
        result.outcome, result.reason = "no model", first_line(error)
        return result
    start = time.process_time()
    try:
        program = export(recipe, module, calls[0])
    except Exception as error:
        cause: BaseException = error
        while cause.__cause__ is not None:
            cause = cause.__cause__
        result.outcome, result.reason = "not exported", re.sub(r" object at 0x\w+", "", first_line(cause))
        _compile_instead(result, recipe, module, calls, single)
        return result
    result.compile_s = time.process_time() - start
    try:
        found = _run(result, recipe, program, calls)
    except Exception as error:
        result.outcome, result.reason = "refused", first_line(error)
        return result
    eager = single if not recipe.is_half else _attempt(torch.float16, module, calls)
    _compare(result, found, single, eager, _attempt(torch.float64, module, calls))
    return result


def make(recipe: Recipe) -> tuple[nn.Module, list[Call]]:
    """The module in eval mode, quantised if the recipe says so, and the inputs of its calls."""
    torch.manual_seed(0)
    module = randomize(recipe.make().eval())
    calls = recipe.calls()
    return recipe.quantize(module, calls[0]) if recipe.quantize else module, calls


def export(recipe: Recipe, module: nn.Module, inputs: Call) -> bytes:
    """The program as ExecuTorch's documentation makes it."""
    with torch.no_grad():
        exported = torch.export.export(copy.deepcopy(module), inputs, dynamic_shapes=recipe.shapes)
    cache_patterns()
    partitioner = _PARTITIONERS[recipe.partitioner](dict(recipe.options))
    lowered = to_edge_transform_and_lower(exported, partitioner=[partitioner])
    return bytes(lowered.to_executorch().buffer)


@torch.no_grad()
def run_as(dtype: torch.dtype, module: nn.Module, calls: Sequence[Call]) -> list[torch.Tensor]:
    """The outputs of successive calls of the module in an element type, in PyTorch."""
    module = copy.deepcopy(module)
    if dtype != torch.float32:
        module = (_WidenedModule(module, calls[0], dtype) if _rounds(module) else module).to(dtype)
    torch.set_default_dtype(dtype)
    try:
        outputs: list[torch.Tensor] = []
        for call in calls:
            inputs = tree_map_only(torch.Tensor, lambda x: x.to(dtype) if x.is_floating_point() else x, call)
            outputs += copy.deepcopy(tensors(module(*inputs)))  # an output may be a buffer
        return outputs
    finally:
        torch.set_default_dtype(torch.float32)


def _rounds(module: nn.Module) -> bool:
    """Whether a module is quantised: by operators of its graph, or by its parameters."""
    nodes = module.graph.nodes if isinstance(module, torch.fx.GraphModule) else ()
    parts = any(type(each) not in (nn.Parameter, torch.Tensor) for each in module.parameters())
    return parts or any(_is_quantiser(node.target) for node in nodes)


def _is_quantiser(target: Any) -> bool:
    return isinstance(target, torch._ops.OpOverload) and target.namespace in _QUANTISERS


class _Widened(torch.fx.Interpreter):
    """A graph in another element type, in which quantisers still compute in float32."""

    def __init__(self, module: torch.fx.GraphModule, dtype: torch.dtype) -> None:
        super().__init__(module)
        self.dtype = dtype

    def call_function(self, target: Any, args: Any, kwargs: Any) -> Any:
        if not _is_quantiser(target):
            return super().call_function(target, args, kwargs)
        narrow = tree_map_only(
            torch.Tensor, lambda x: x.float() if x.dtype == self.dtype else x, (args, kwargs)
        )
        outputs = super().call_function(target, *narrow)
        if "choose_qparams" in str(target):  # scales go to quantisers only
            return outputs
        return tree_map_only(
            torch.Tensor, lambda x: x.to(self.dtype) if x.is_floating_point() else x, outputs
        )


class _WidenedModule(nn.Module):
    """A quantised module whose sums and products are in another element type."""

    def __init__(self, module: nn.Module, inputs: Call, dtype: torch.dtype) -> None:
        super().__init__()
        exported = torch.export.export(module, inputs).run_decompositions({})
        self.inner, self.dtype = exported.module(check_guards=False), dtype

    def forward(self, *inputs: Any) -> Any:
        return _Widened(self.inner, self.dtype).run(*inputs)


def _attempt(dtype: torch.dtype, module: nn.Module, calls: Sequence[Call]) -> list[torch.Tensor] | None:
    """As `run_as`; None for a module that fixes another element type inside."""
    try:
        return run_as(dtype, module, calls)
    except Exception:
        return None


def _run(result: StockResult, recipe: Recipe, content: bytes, calls: Sequence[Call]) -> list[torch.Tensor]:
    """The program's outputs; a stateful one must give the same again after a reset."""
    with pteron.load(content) as program:
        method = program["forward"]
        result.operators = sorted(describe(result, program, "forward"))
        outputs = _outputs(method, calls)
        if recipe.kind == STREAMS:
            method.reset()
            again = _outputs(method, calls)
            if not all(torch.equal(a, b) for a, b in zip(outputs, again, strict=True)):
                raise AssertionError("after reset(), the same calls give other outputs")
        result.states = method.state_bytes
        before = method.counters.dispatches
        times = []
        for _ in range(_TIMED_CALLS):
            start = time.perf_counter()
            method(*calls[-1])
            times.append(1e3 * (time.perf_counter() - start))
        result.launches = (method.counters.dispatches - before) // _TIMED_CALLS
        result.call_ms = statistics.median(times)
    return outputs


def _outputs(method: Any, calls: Sequence[Call]) -> list[torch.Tensor]:
    return [torch.as_tensor(each) for call in calls for each in method(*call)]


def describe(result: Result, program: pteron.Program, name: str) -> Counter[str]:
    """Add where a method's operators run to the result, and return the uses of those in delegates."""
    graphs = program.graphs(name)
    (record,) = (each for each in program.file.methods if each.name == name)
    used = Counter(node.name for graph in graphs for node in graph.nodes if node.name != _NO_WORK)
    hosted = Counter(
        record.operators[call.operator] for call in record.instructions if isinstance(call, KernelCall)
    )
    result.delegates += len(graphs)
    result.gpu += used.total()
    result.host += hosted.total()
    result.left += [[count, operator, ""] for operator, count in hosted.most_common()]
    return used


def _compare(result: StockResult, found: Any, single: Any, eager: Any, exact: Any) -> None:
    if [each.shape for each in found] != [each.shape for each in single]:
        result.outcome, result.reason = "wrong", "shapes of outputs differ"
        return
    if exact is not None and eager is not None:
        result.eager = largest_error(eager, exact)
    result.error = largest_error(found, single if exact is None else exact)
    if not result.is_allowed:
        result.outcome = "wrong"


def _compile_instead(
    result: StockResult, recipe: Recipe, module: nn.Module, calls: Sequence[Call], single: list[torch.Tensor]
) -> None:
    """What `pteron.compile` makes of a module that ExecuTorch does not export."""
    try:
        compiled = pteron.compile(module, calls[0], dynamic_shapes=recipe.shapes, use_cache=False)
        found = [each for call in calls for each in tensors(compiled(*call))]
    except Exception as error:
        result.compiled = f"refused: {first_line(error)}"
        return
    share = f"{compiled.report.share:.0%} on the GPU"
    result.compiled = f"{share}, error {largest_error(found, single):.1e} to eager float32"
