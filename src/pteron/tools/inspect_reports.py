"""What `inspect` reports of programs, their methods, and weight files."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from pteron.dtypes import DType
from pteron.extras import why_refused
from pteron.runtime.specs import ValueSpec
from pteron.tools.inspect_delegate import DelegateReport, OperatorUse


@dataclass(frozen=True, slots=True)
class MethodReport:
    """An entry point. One without instructions only gives its outputs, which are constants."""

    name: str
    inputs: tuple[ValueSpec, ...]
    outputs: tuple[ValueSpec, ...]
    instructions: Mapping[str, int]
    host_operators: tuple[OperatorUse, ...]
    host_constants: int
    host_constant_bytes: int
    delegates: tuple[DelegateReport, ...]
    refusal: str | None = None  # what loading it says, where its delegates and operators are all there

    @property
    def is_constant(self) -> bool:
        return not self.inputs and not self.instructions

    @property
    def problems(self) -> tuple[str, ...]:
        """Why it cannot run here."""
        hosted = [why_refused(use.name) for use in self.host_operators if not use.available]
        whole = [self.refusal] if self.refusal else []
        return (*(problem for delegate in self.delegates for problem in delegate.problems), *hosted, *whole)


@dataclass(frozen=True, slots=True)
class ProgramReport:
    """A .pte program, or the program in a bundled .bpte with how many test cases its methods have.

    `problems` say why it does not run here; where there are none and a delegate needs one, `adapter` is what
    it runs on."""

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
    """One entry of a weight file; data that are not a tensor's have no element type."""

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
