"""ExecuTorch's `test_vulkan_delegate.py`: a recipe is a test method.

Where a test would load a program it gets a recorder; where it would compare outputs, the answers are noted.
Tests that upstream disables for its own runtime's sake are recorded as well.
"""

from __future__ import annotations

import unittest
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest.mock import patch

import torch
from executorch.backends.vulkan.test import test_vulkan_delegate as suite

from conformance.exported import delegates_of, to_arrays
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
    method = getattr(_CLASSES[owner], name)
    recorded: list[_Recorded] = []
    end: list[Case] = []
    torch.manual_seed(0)
    try:
        with _recording(recorded):
            getattr(method, "__wrapped__", method)(_CLASSES[owner](name))
    except _NotDelegatedError:
        end.append(Case(f"{recipe}#{len(recorded)}", outcome="not delegated"))
    except Exception as error:
        end.append(Case(f"{recipe}#{len(recorded)}", outcome="export failed", cause=sentence(error)))
    called = [each for each in recorded if each.calls]
    cases = [Case(f"{recipe}#{place}", each.program, tuple(each.calls)) for place, each in enumerate(called)]
    return cases + end or [Case(recipe, outcome="not delegated", cause="as upstream's test wants it")]


@contextmanager
def _recording(recorded: list[_Recorded]) -> Iterator[None]:
    """While it lasts, tests of the suite load into `recorded` and compare nothing."""

    def load(buffer: bytes) -> _Recorded:
        recorded.append(_Recorded(bytes(buffer)))
        return recorded[-1]

    def check_delegation(_: Any, program: Any) -> None:
        if not delegates_of(program):
            raise _NotDelegatedError

    def note_outputs(
        _: Any, model_output: Any, ref_output: Any, atol: float = 1e-3, rtol: float = 1e-3, **options: Any
    ) -> None:
        expected = to_arrays(ref_output)
        if options.get("first_output_only"):
            expected = expected[:1]
        module, inputs = model_output
        module.calls.append(Call(to_arrays(inputs), expected, atol, rtol, bool(module.calls)))

    with ExitStack() as replaced:
        replaced.enter_context(patch.object(suite, "_load_for_executorch_from_buffer", load))
        for tests in _CLASSES.values():
            for name, function in (
                ("check_vk_delegation", check_delegation),
                ("assert_outputs_equal", note_outputs),
            ):
                if name in vars(tests):
                    replaced.enter_context(patch.object(tests, name, function))
        yield


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
