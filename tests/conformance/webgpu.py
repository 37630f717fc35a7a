"""The operator tests of ExecuTorch's WebGPU backend: a recipe is one case of `op_tests`."""

from __future__ import annotations

import copy
import inspect
from collections.abc import Callable, Sequence
from typing import Any

import torch
from executorch.backends.vulkan.partitioner.vulkan_partitioner import VulkanPartitioner
from executorch.backends.webgpu.test.op_tests import cases as _declared  # noqa: F401  # fills the registry
from executorch.backends.webgpu.test.op_tests.generate_op_tests import _materialize, export_case
from executorch.backends.webgpu.test.op_tests.test_suite import op_test_registry
from executorch.exir import to_edge_transform_and_lower
from torch.export import Dim, export

from conformance.exported import delegates_of, live_inputs, to_arrays
from conformance.record import Call, Case, sentence


def recipes() -> list[str]:
    """Every case of every suite, as "operator/case"."""
    return [
        f"{operator}/{case.name or position}"
        for operator, suite in op_test_registry.items()
        for position, case in enumerate(suite.cases)
    ]


def record(recipe: str) -> list[Case]:
    """The case as upstream exports it, at its own inputs and, where it is dynamic, at further sizes."""
    suite, case = _find(recipe)
    try:
        module, inputs, program = export_case(suite, case)
    except Exception as error:
        return [Case(recipe, outcome="export failed", cause=sentence(error))]
    if not delegates_of(program):
        return [Case(recipe, outcome="not delegated")]
    return [Case(recipe, program.buffer, (_call(suite, case, module, inputs),))]


def record_live(recipe: str) -> list[Case]:
    """The same module exported with every dim live that can be, run at sizes up to the case's own."""
    suite, case = _find(recipe)
    try:
        module = suite.module_factory(**case.construct)
        torch.manual_seed(0)
        inputs = tuple(_materialize(spec) for spec in case.export_inputs or case.inputs)
        shapes = case.dynamic_shapes or _every_dim(module, inputs)
        exported = export(module, inputs, dynamic_shapes=shapes)
    except Exception as error:
        return [Case(recipe, outcome="skipped", cause=f"no dim can be live: {sentence(error)}")]
    drawn = list(live_inputs(exported, inputs))
    if not drawn:
        return [Case(recipe, outcome="skipped", cause="no dim can be live")]
    calls, refusal = [], ""
    for each in (*drawn, inputs, drawn[0]):
        try:
            calls.append(_call(suite, case, module, each, is_live=True))
        except Exception as error:
            refusal = sentence(error)
    if len(calls) < 2:
        return [Case(recipe, outcome="skipped", cause=f"PyTorch refuses smaller sizes: {refusal}")]
    try:
        # Not with `require_dynamic_shapes`: it leaves out what only upstream's runtime cannot resize.
        program = to_edge_transform_and_lower(exported, partitioner=[VulkanPartitioner()]).to_executorch()
    except Exception as error:
        return [Case(recipe, outcome="export failed", cause=sentence(error))]
    if not delegates_of(program):
        return [Case(recipe, outcome="not delegated")]
    return [Case(recipe, program.buffer, tuple(calls))]


def _find(recipe: str) -> tuple[Any, Any]:
    operator, _, name = recipe.partition("/")
    suite = op_test_registry[operator]
    return suite, next(case for place, case in enumerate(suite.cases) if (case.name or str(place)) == name)


def _every_dim(module: torch.nn.Module, inputs: Sequence[torch.Tensor]) -> tuple[Any, ...]:
    """Each dim larger than one may shrink; export itself finds which must be equal or fixed."""
    shapes = tuple(
        {dim: Dim.AUTO(min=1, max=size) for dim, size in enumerate(x.shape) if size > 1} for x in inputs
    )
    (*_, last) = inspect.signature(module.forward).parameters.values()
    return (shapes,) if last.kind is inspect.Parameter.VAR_POSITIONAL else shapes


def _call(suite: Any, case: Any, module: Any, inputs: Sequence[Any], *, is_live: bool = False) -> Call:
    """What the module must answer: computed in float64 where the suite does so."""
    absolute = suite.atol if case.atol is None else case.atol
    relative = suite.rtol if case.rtol is None else case.rtol
    golden: Callable[..., Any] = module
    with torch.no_grad():
        if case.golden_fn is not None:
            expected = case.golden_fn(module, inputs)
        elif suite.golden_dtype == "float64":
            golden = copy.deepcopy(module).double()
            expected = golden(*(x.double() if x.is_floating_point() else x for x in inputs))
        else:
            expected = golden(*inputs)
    return Call(to_arrays(inputs), to_arrays(expected), absolute, relative, is_live)
