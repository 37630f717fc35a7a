"""The reports of `inspect` on programs, methods and weight files, and these as lines."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from pteron.dtypes import DType
from pteron.extras import has_torch, why_refused
from pteron.runtime.specs import ValueSpec
from pteron.tools.inspect.delegate import DelegateReport, MemoryUse, OperatorUse
from pteron.tools.text import columns, counted, human_bytes


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
    fitting: str | None = None  # which dims must be lower than their maximum on this machine, if any

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
    made_for: str | None = None
    """The runtimes that its delegates are for."""
    host_reasons: tuple[str, ...] = ()
    """Why operators run on the host, if `pteron.compile` made the program."""


@dataclass(frozen=True, slots=True)
class WeightReport:
    """An entry of a weight file; data other than tensors have no dtype."""

    key: str
    dtype: DType | None
    shape: tuple[int, ...]
    bytes: int


@dataclass(frozen=True, slots=True)
class WeightFileReport:
    name: str
    kind: str
    bytes: int
    weights: tuple[WeightReport, ...]


def inspect_lines(report: ProgramReport | WeightFileReport) -> Iterator[str]:
    if isinstance(report, WeightFileReport):
        yield from _weight_file_lines(report)
        return
    yield f"{report.name}  {human_bytes(report.bytes)}, {report.kind}"
    rows = []
    if report.named_data:
        size = human_bytes(report.named_data_bytes)
        rows.append(["named data", f"{counted(report.named_data, 'tensor')}, {size}"])
    if report.made_for:
        rows.append(["made for", report.made_for])
    rows += [["test cases", f"{method}: {count}"] for method, count in report.test_cases.items()]
    first, *rest = report.problems or (f"yes, on {report.adapter}" if report.adapter else "yes",)
    rows.append(["runs here ", f"{'no: ' if report.problems else ''}{first}"])
    rows += [["", f"    {problem}"] for problem in rest]
    yield from columns(rows, indent=2)
    for method in report.methods:
        if not method.is_constant:
            yield ""
            yield from _method_lines(method)
    if report.host_reasons:
        yield from ("", "why operators are on the host")
        yield from (f"  {reason}" for reason in report.host_reasons)
    constant = [method for method in report.methods if method.is_constant]
    if constant:
        yield from ("", "constant methods")
        yield from columns([[m.name, ", ".join(map(value_text, m.outputs))] for m in constant], indent=2)


def _method_lines(method: MethodReport) -> Iterator[str]:
    yield f"{method.name}({_listed(method.inputs)}) -> ({_listed(method.outputs)})"
    rows = [["instructions", ", ".join(counted(count, kind) for kind, count in method.instructions.items())]]
    if method.fitting:
        rows.append(["fits here", method.fitting])
    if method.host_constants:
        constants = MemoryUse(method.host_constants, method.host_constant_bytes)
        rows.append(["host constants", _memory(constants, "tensor")])
    yield from columns(rows, indent=2)
    if method.host_operators:
        yield "  host operators"
        yield from _uses(method.host_operators, 4, "unsupported" if has_torch() else "needs PyTorch")
    for index, delegate in enumerate(method.delegates):
        yield from _delegate_lines(index, delegate)


def _delegate_lines(index: int, delegate: DelegateReport) -> Iterator[str]:
    if delegate.constants is None:
        yield f"  delegate {index}  {delegate.backend}, {human_bytes(delegate.bytes)}"
        return
    yield f"  delegate {index}  {delegate.backend}, {counted(delegate.nodes, 'node')}"
    missing = len(delegate.constants_missing)
    absent = f", {missing} of them missing in the given files" if missing else ""
    rows = [["constants", _memory(delegate.constants, "tensor") + absent]]
    if delegate.states is not None and delegate.states.count:
        rows.append(["states", _memory(delegate.states, "tensor") + ", kept between calls"])
    if delegate.activations is not None:
        rows.append(["activations", _memory(delegate.activations, "buffer") + ", at the maximum shapes"])
    rows += [["live integer", text] for text in delegate.live_integers]
    rows += [["pinned", text] for text in delegate.pinned]
    yield from columns(rows, indent=4)
    yield "    operators"
    yield from _uses(delegate.operators, 6, "unsupported")
    if delegate.graph:
        yield "    graph"
        yield from (f"      {line}" for line in delegate.graph)


def _weight_file_lines(report: WeightFileReport) -> Iterator[str]:
    count = counted(len(report.weights), "entry", "entries")
    yield f"{report.name}  {human_bytes(report.bytes)}, {report.kind}, {count}"
    rows = []
    for weight in report.weights:
        kind = f"{weight.dtype}{list(weight.shape)}" if weight.dtype else "bytes"
        rows.append((human_bytes(weight.bytes), kind, weight.key))
    yield from columns(rows, indent=2, align=">")


def _uses(operators: Iterable[OperatorUse], indent: int, lacking: str) -> list[str]:
    rows = [(str(use.count), use.name, "" if use.available else lacking) for use in operators]
    return columns(rows, indent, align=">")


def _memory(use: MemoryUse, noun: str) -> str:
    return f"{counted(use.count, noun)}, {human_bytes(use.bytes)}"


def _listed(specs: Sequence[ValueSpec]) -> str:
    """Types with names, where the program has them."""
    return ", ".join(
        value_text(spec) if spec.name in ("", f"input_{position}") else f"{spec.name}: {value_text(spec)}"
        for position, spec in enumerate(specs)
    )


def value_text(spec: ValueSpec) -> str:
    """The type of a tensor, or the value of a scalar if the file has one."""
    return str(spec) if spec.kind == "tensor" or spec.value is None else repr(spec.value)
