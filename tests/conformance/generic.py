"""The generic backend suite, operators and models: a recipe is a test function with its parameters.

The suite's own flow exports; where it would run the program, it is recorded instead. Cases that the suite
skips because its portable kernels lack an operator are recorded too: Pteron's host has PyTorch.
"""

from __future__ import annotations

import copy
import importlib
import itertools
import pkgutil
import unittest
import zlib
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import torch
from executorch.backends.test.harness.stages import StageType
from executorch.backends.test.suite import models, operators, runner
from executorch.backends.test.suite.flows.vulkan import (
    VULKAN_STATIC_INT8_PER_CHANNEL_TEST_FLOW,
    VULKAN_TEST_FLOW,
)
from executorch.backends.test.suite.reporting import TestResult
from executorch.backends.vulkan.test.tester import VulkanTester
from torch.utils._pytree import tree_map

from conformance.exported import live_inputs, to_arrays
from conformance.record import Array, Call, Case, sentence

TOLERANCE = 1e-3  # upstream allows 0.1 and 4 %, which int8 programs need
ROUNDING = 0.01  # of a model's largest output: more than rounding in float32 makes
OF_LARGEST = 1e-5  # of a model's largest output: random weights make some of 1e11, and others cancel out

runner.UNSUPPORTED_PORTABLE_OPS = set()
runner._graph_has_unsupported_patterns = lambda program: False
runner._get_test_seed = lambda name: zlib.crc32(name.encode())  # its own differs from run to run


def recipes() -> list[str]:
    """Every test function of the operators, once for each set of its parameters."""
    return list(_tests("operators"))


def model_recipes() -> list[str]:
    """Every model, with static and with dynamic shapes where the suite has both. They take minutes each."""
    return list(_tests("models"))


def record(recipe: str) -> list[Case]:
    """One case for each program that the test function lowers, in f32."""
    return _record(recipe, VULKAN_TEST_FLOW)


def record_int8(recipe: str) -> list[Case]:
    """The same, quantized by VulkanQuantizer to int8 before it is lowered."""
    return _record(recipe, VULKAN_STATIC_INT8_PER_CHANNEL_TEST_FLOW)


class _Recorder(VulkanTester):  # type: ignore[misc]  # executorch is untyped
    """Upstream's tester, which notes the program and its calls instead of running them."""

    calls: tuple[Call, ...] = ()
    program: bytes = b""
    is_quantized: bool = False
    is_model: bool = False

    def run_method_and_compare_outputs(
        self, inputs: Any = None, *, atol: float, rtol: float, **_: Any
    ) -> _Recorder:
        inputs = inputs or next(self.generate_random_inputs())
        exported = self.stages[StageType.EXPORT].artifact
        absolute, relative = (atol, rtol) if self.is_quantized else (TOLERANCE, TOLERANCE)

        def call(given: tuple[Any, ...], is_live: bool) -> Call:
            precise = _in_float64(exported, given) if self.is_model else None
            expected = precise or to_arrays(self._calculate_reference_output(exported, given)[0])
            largest = max(float(abs(output).max()) for output in precise) if precise else 0.0
            allowed = max(absolute, OF_LARGEST * largest)
            return Call(to_arrays(given), expected, allowed, relative, is_live)

        def live_calls() -> Iterator[Call]:
            for given in live_inputs(exported, inputs):
                try:
                    yield call(given, True)
                except Exception:  # sizes at which PyTorch itself has no answer
                    continue

        with torch.no_grad():
            self.calls = (call(inputs, False), *live_calls())
        self.program = self.stages[StageType.SERIALIZE].artifact
        return self


def _in_float64(exported: Any, given: Any) -> tuple[Array, ...] | None:
    """A model's answer without the rounding of many layers in float32, which can be more than is allowed;
    None where its graph names a type itself: then PyTorch raises an error, or reads floats as doubles."""

    def double(value: Any) -> Any:
        return value.double() if torch.is_tensor(value) and value.is_floating_point() else value

    def single(value: Any) -> Any:
        return value.float() if torch.is_tensor(value) and value.is_floating_point() else value

    try:
        module = copy.deepcopy(exported.module()).double()  # its parameters are the program's
        precise = to_arrays(tree_map(single, module(*tree_map(double, given))))
    except RuntimeError:
        return None
    rounded = to_arrays(exported.module()(*given))
    is_alike = all(
        np.abs(a - b).max() <= ROUNDING * np.abs(b).max()
        for a, b in zip(precise, rounded, strict=True)
        if b.size
    )
    return precise if is_alike else None


class _Runner:
    """What the suite's functions call with the models they want lowered."""

    def __init__(self, recipe: str, flow: Any) -> None:
        self._recipe = recipe
        self._flow = replace(flow, tester_factory=self._tester)
        self._testers: list[_Recorder] = []
        self.cases: list[Case] = []

    def _tester(self, *arguments: Any) -> _Recorder:
        tester = _Recorder(*arguments)
        tester.is_quantized = self._flow.quantize
        tester.is_model = self._recipe.startswith("models/")
        self._testers.append(tester)
        return tester

    def lower_and_run_model(
        self,
        model: Any,
        inputs: Any,
        generate_random_test_inputs: bool = True,
        dynamic_shapes: Any = None,
    ) -> None:
        base = self._recipe.partition("[")[0]
        summary = runner.run_test(
            model,
            inputs,
            self._flow,
            self._recipe,
            base,
            len(self.cases),
            None,
            dynamic_shapes,
            generate_random_test_inputs,
        )
        name = f"{self._recipe}#{len(self.cases)}"
        if summary.result == TestResult.SUCCESS:
            tester = self._testers[-1]
            self.cases.append(Case(name, tester.program, tester.calls))
        elif summary.result == TestResult.SUCCESS_UNDELEGATED:
            self.cases.append(Case(name, outcome="not delegated"))
        else:
            cause = sentence(summary.error) if summary.error else str(summary.result)
            self.cases.append(Case(name, outcome="export failed", cause=cause))
        self._testers.clear()


def _record(recipe: str, flow: Any) -> list[Case]:
    function, arguments = _tests(recipe.partition("/")[0])[recipe]
    if getattr(function, "__unittest_skip__", False):
        return [Case(recipe, outcome="skipped", cause=getattr(function, "__unittest_skip_why__", ""))]
    torch.manual_seed(0)
    recorder = _Runner(recipe, flow)
    try:
        function(recorder, **arguments)
    except unittest.SkipTest as reason:
        recorder.cases.append(Case(f"{recipe}#{len(recorder.cases)}", outcome="skipped", cause=str(reason)))
    return recorder.cases


@cache
def _tests(kind: str) -> dict[str, tuple[Callable[..., None], dict[str, Any]]]:
    found = {}
    for module in _modules(operators if kind == "operators" else models):
        for name, function in list(vars(module).items()):
            if name.startswith("test_") and callable(function):
                for label, arguments in _parameters(function):
                    found[f"{kind}/{name}{label}"] = (function, arguments)
    return found


def _modules(package: Any) -> Iterator[Any]:
    if package is models:
        _stand_in_for_torchvision()
    for entry in sorted(pkgutil.iter_modules(package.__path__), key=lambda entry: entry.name):
        try:
            yield importlib.import_module(f"{package.__name__}.{entry.name}")
        except ModuleNotFoundError as error:
            print(f"{entry.name} is left out: {error}")


def _stand_in_for_torchvision() -> None:
    """torchvision's compiled operators need the PyTorch they were built with; its models need none of them,
    but importing it fails unless these two are declared."""
    try:
        library = torch.library.Library("torchvision", "DEF")
        for name in ("nms", "qnms"):
            library.define(f"{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
        _LIBRARIES.append(library)
    except RuntimeError:  # they are there
        pass


_LIBRARIES: list[Any] = []  # a library without references unregisters its operators


def _parameters(function: Any) -> Iterator[tuple[str, dict[str, Any]]]:
    """The label and the arguments of each set of parameters that pytest would make."""
    choices = []
    for mark in getattr(function, "pytestmark", ()):
        name, values = mark.args
        ids = mark.kwargs.get("ids", str)
        labels = ids if isinstance(ids, list) else [ids(value) for value in values]
        choices.append([(label, name, value) for label, value in zip(labels, values, strict=True)])
    for chosen in itertools.product(*choices):
        label = "-".join(label for label, _, _ in chosen)
        yield (f"[{label}]" if label else ""), {name: value for _, name, value in chosen}
