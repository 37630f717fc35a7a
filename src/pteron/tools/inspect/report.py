"""The reports of `inspect`: programs, methods and weight files."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from pteron.dtypes import DType
from pteron.extras import why_refused
from pteron.runtime.specs import ValueSpec
from pteron.tools.inspect.delegate import DelegateReport, OperatorUse


@dataclass(frozen=True, slots=True)
class MethodReport:
    """A method. One without instructions only returns constants."""

    name: str
    inputs: tuple[ValueSpec, ...]
    outputs: tuple[ValueSpec, ...]
    instructions: Mapping[str, int]
    host_operators: tuple[OperatorUse, ...]
    host_constants: int
    host_constant_bytes: int
    delegates: tuple[DelegateReport, ...]
    refusal: str | None = None  # the error of loading it, if its delegates and operators are supported

    @property
    def is_constant(self) -> bool:
        return not self.inputs and not self.instructions

    @property
    def problems(self) -> tuple[str, ...]:
        """Why it cannot run on this machine."""
        hosted = [why_refused(use.name) for use in self.host_operators if not use.available]
        whole = [self.refusal] if self.refusal else []
        return (*(problem for delegate in self.delegates for problem in delegate.problems), *hosted, *whole)


@dataclass(frozen=True, slots=True)
class ProgramReport:
    """A .pte program, or the program in a bundled .bpte with its number of test cases per method.

    `problems` say why it does not run on this machine. Without problems, `adapter` is the one it runs on, if
    it needs one."""

    name: str
    kind: str
    bytes: int
    version: int
    named_data: int
    named_data_bytes: int
    methods: tuple[MethodReport, ...]
    test_cases: Mapping[str, int]
    problems: tuple[str, ...]
    adapter: str | None


@dataclass(frozen=True, slots=True)
class WeightReport:
    """An entry of a weight file; data other than tensors have no dtype."""

    key: str
    dtype: DType | None
    shape: tuple[int, ...]
    bytes: int


@dataclass(frozen=True, slots=True)
class WeightFileReport:
    """A .ptd weight file."""

    name: str
    kind: str
    bytes: int
    weights: tuple[WeightReport, ...]
