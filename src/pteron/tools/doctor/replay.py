"""Graphs and programs on a device with a target -> their results, step by step, beside known answers."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import partial

from pteron.dtypes import DType
from pteron.errors import DeviceError, GraphError, MisfitError, ShapeError
from pteron.format.source import Source
from pteron.gpu import Device
from pteron.graph import Tensor
from pteron.ops import Target
from pteron.passes import prepare
from pteron.passes.rewrite import switched_on
from pteron.plan import Compiled
from pteron.runtime import Program
from pteron.runtime.delegate import Delegate
from pteron.runtime.outputs import Wanted
from pteron.tools import Progress, silent
from pteron.tools.accuracy import Rounding, Tolerances
from pteron.tools.compare.calls import ComparedWork, StepChecker, run_steps
from pteron.tools.compare.report import NodeResult, Verdict
from pteron.tools.compare.steps import SteppedSession, StepRecord
from pteron.tools.doctor.answers import Answers, read
from pteron.tools.doctor.cases import built_in
from pteron.tools.doctor.drawing import KnownCase, hashed
from pteron.tools.inputs import LiveSize
from pteron.tools.workload import Prompt, Selection, open_program

# In a graph of several nodes, the errors of all nodes before one add up.
_CHAINED = Tolerances({kind: 1e-3 for kind in Rounding if kind is not Rounding.STEPS})
_LIVE = (7, 1)  # sizes of live dims beside the maximum
_TOKENS, _STEPS = 7, 2  # of language models: a prompt, and decode steps after it
_LANGUAGE = ("get_max_context_len", "get_max_seq_len", "get_vocab_size")  # methods of language models


@dataclass(frozen=True, slots=True)
class Checked:
    """What was run, and the results of its steps in order."""

    name: str
    rows: tuple[NodeResult, ...]

    @property
    def wrong(self) -> tuple[NodeResult, ...]:
        return tuple(row for row in self.rows if row.verdict is Verdict.DEPARTS)


class BuiltIn:
    """The built-in set with its stored answers."""

    name = "the built-in set"

    def __init__(self, names: Iterable[str] | None = None) -> None:
        """All cases, or those of some names."""
        cases, wanted = built_in(), None if names is None else {*names}
        pairs = [
            pair for pair in zip(cases, read(cases), strict=True) if wanted is None or pair[0].name in wanted
        ]
        self.cases, self._answers = [case for case, _ in pairs], [answers for _, answers in pairs]

    def check(
        self, device: Device, target: Target, only: Iterable[str] | None = None, progress: Progress = silent
    ) -> list[Checked]:
        """Every case, or only those of some names."""
        wanted = None if only is None else {*only}
        found = []
        for index, (case, answers) in enumerate(zip(self.cases, self._answers, strict=True)):
            if wanted is None or case.name in wanted:
                progress("checking kernels", index, len(self.cases))
                found.append(Checked(case.name, tuple(check_case(case, answers, device, target))))
        return found


def check_case(
    case: KnownCase, answers: Sequence[Answers], device: Device, target: Target
) -> list[NodeResult]:
    """The steps of a case's calls, up to the first wrong one: later ones read what it wrote."""
    known: list[Answers] = [{}]

    def evaluate(record: StepRecord) -> Answers:
        return known[0]

    checker = StepChecker(evaluate, Tolerances() if len(case.graph.nodes) == 1 else _CHAINED)
    try:
        compiled = Compiled(prepare(case.graph), target)
        with closing(SteppedSession(compiled, device, partial(checker.observe, 0))) as session:
            wanted = [
                Wanted(each.dtype if each.dtype.is_float else DType.I32, on_gpu=False)
                for each in case.graph.outputs
                if isinstance(each, Tensor)
            ]
            with closing(Delegate(session)) as delegate:
                for inputs, known[0], checker.call in zip(case.calls, answers, case.sizes, strict=True):
                    delegate.run(inputs, wanted)
                    if checker.departure is not None:
                        break
    except DeviceError as error:  # a kernel that the driver does not compile or run
        checker.rows.append(_failed(case.name, checker.call, error))
    wrong = next((at for at, row in enumerate(checker.rows) if row.verdict is Verdict.DEPARTS), None)
    return checker.rows if wrong is None else checker.rows[: wrong + 1]


def _failed(name: str, call: str, error: DeviceError) -> NodeResult:
    kernel = str(error).partition("compiling kernel ")[2].split(":")[0]
    kernels = (kernel.split(".")[-1].split("(")[0],) if kernel else ()
    return NodeResult(call, 0, (), (), name, "", Verdict.DEPARTS, reason=str(error), kernels=kernels)


class OfProgram:
    """The steps of a program's methods, on random inputs, beside the float64 references."""

    def __init__(self, source: str | os.PathLike[str], data: Sequence[Source] = ()) -> None:
        self.name = os.fspath(source)
        self._source, self._data = source, data

    def check(
        self, device: Device, target: Target, only: Iterable[str] | None = None, progress: Progress = silent
    ) -> list[Checked]:
        """Every method, or only some, at the maximum sizes and smaller ones."""
        wanted = None if only is None else {*only}
        with open_program(self._source, self._data, device) as program:
            names = [name for name in program.methods if any(each.nodes for each in program.graphs(name))]
            return [
                Checked(name, tuple(self._method(program, name, target, progress)))
                for name in names
                if wanted is None or name in wanted
            ]

    def _method(self, program: Program, name: str, target: Target, progress: Progress) -> list[NodeResult]:
        from pteron.tools.compare.float64 import float64  # imports PyTorch

        checker = StepChecker(float64, Tolerances(), progress)
        for index, (label, work) in enumerate(_works_of(program)):
            checker.call = label
            try:
                run_steps(program, name, target, switched_on(), work, checker)
            except DeviceError as error:
                checker.rows.append(_failed(name, label, error))
            except (ShapeError, MisfitError, GraphError):
                if index == 0:  # other sizes may not fit together
                    raise
        return checker.rows


def _works_of(program: Program) -> list[tuple[str, ComparedWork]]:
    if any(name in program for name in _LANGUAGE):
        tokens = [int(each) for each in hashed(_TOKENS, 97)]
        return [("", Prompt(tokens, _STEPS))]
    sized = [(f"live dims {size}", Selection(sizes=[LiveSize(size)])) for size in _LIVE]
    is_live = any(any(spec.dynamic) for name in program.methods for spec in program[name].inputs)
    return [("", Selection()), *(sized if is_live else ())]
