"""ExecuTorch's `test_vulkan_delegate.py`: a recipe is a test method.

Where a test would load a program it gets a recorder; where it would compare outputs, the answers are noted.
Tests that upstream disables for its own runtime's sake are recorded as well.
"""

from __future__ import annotations

import unittest
from collections.abc import Sequence
from typing import Any

import torch
from executorch.backends.vulkan.test import test_vulkan_delegate as suite

from conformance.lowered import delegates_of, to_arrays
from conformance.record import Call, Case, sentence

_CLASSES: dict[str, type[Any]] = {
    name: value
    for name, value in vars(suite).items()
    if isinstance(value, type) and issubclass(value, unittest.TestCase)
}


def recipes() -> list[str]:
    """Every test method, as "Class/method"."""
    loader = unittest.TestLoader()
    return [f"{name}/{test}" for name, tests in _CLASSES.items() for test in loader.getTestCaseNames(tests)]


def record(recipe: str) -> list[Case]:
    """One case for each program that the test loads, with the calls it makes of it."""
    owner, _, name = recipe.partition("/")
    tests = _CLASSES[owner]
    method = getattr(tests, name)
    recorded: list[_Recorded] = []
    causes: list[str] = []

    class Recording(tests):  # type: ignore[misc,valid-type]  # a class that is known at run time only
        def check_vk_delegation(self, program: Any) -> None:
            if not delegates_of(program):
                raise _NotDelegatedError

        def assert_outputs_equal(
            self, model_output: Any, ref_output: Any, atol: float = 1e-3, rtol: float = 1e-3, **options: Any
        ) -> None:
            expected = to_arrays(ref_output)
            if options.get("first_output_only"):
                expected = expected[:1]
            module, inputs = model_output
            module.calls.append(Call(to_arrays(inputs), expected, atol, rtol, bool(module.calls)))

    def load(buffer: bytes) -> _Recorded:
        recorded.append(_Recorded(bytes(buffer)))
        return recorded[-1]

    original = suite._load_for_executorch_from_buffer
    suite._load_for_executorch_from_buffer = load
    torch.manual_seed(0)
    try:
        getattr(method, "__wrapped__", method)(Recording(name))
    except _NotDelegatedError:
        causes.append("not delegated")
    except Exception as error:
        causes.append(sentence(error))
    finally:
        suite._load_for_executorch_from_buffer = original
    cases = [
        Case(f"{recipe}#{place}", each.program, tuple(each.calls)) for place, each in enumerate(recorded)
    ]
    for cause in causes:
        outcome = "not delegated" if cause == "not delegated" else "export failed"
        text = "" if outcome == cause else cause
        cases.append(Case(f"{recipe}#{len(cases)}", outcome=outcome, cause=text))
    return cases or [Case(recipe, outcome="not delegated", cause="as upstream's test wants it")]


class _NotDelegatedError(Exception):
    """The partitioner left a whole program to the host."""


class _Recorded:
    """What a test takes for a loaded program; what it takes for outputs is who was asked, and what for."""

    def __init__(self, program: bytes) -> None:
        self.program = program
        self.calls: list[Call] = []

    def run_method(self, name: str, inputs: Sequence[Any]) -> tuple[_Recorded, Sequence[Any]]:
        assert name == "forward"
        return self, inputs
