"""The suites by name: what each of them records. Importing a suite imports PyTorch and executorch."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module

from conformance.record import Case


@dataclass(frozen=True, slots=True)
class Suite:
    """A module of this package that lists recipes, and its function that records one."""

    title: str
    module: str
    function: str = "record"
    listing: str = "recipes"

    def recipes(self) -> list[str]:
        found: list[str] = getattr(import_module(f"conformance.{self.module}"), self.listing)()
        return found

    def record(self, recipe: str) -> list[Case]:
        record: Callable[[str], list[Case]] = getattr(
            import_module(f"conformance.{self.module}"), self.function
        )
        return record(recipe)


SUITES = {
    "webgpu": Suite("WebGPU operator tests (`backends/webgpu/test/op_tests`)", "webgpu"),
    "vulkan": Suite("`test_vulkan_delegate.py`", "vulkan"),
    "generic": Suite("generic suite, operators (`backends/test/suite`)", "generic"),
    "models": Suite("generic suite, models, static and dynamic shapes", "generic", listing="model_recipes"),
    "live": Suite("WebGPU operator tests, every dim live that can be", "webgpu", "record_live"),
    "forms": Suite("forms that the exporter's checks accept, of each operator", "forms"),
    "int8": Suite("generic suite, operators, quantized by `VulkanQuantizer`", "generic", "record_int8"),
}
