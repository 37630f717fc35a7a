"""A program -> a method whose delegates run step by step, the calls that a comparison makes of it (once, or
once per rewrite), and the check of every step against a reference."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from functools import partial
from typing import Protocol, TypeAlias

import numpy as np

from pteron.errors import InputError, PteronError
from pteron.graph import SymInt, Tensor
from pteron.host.lookup import find_operator
from pteron.llm.arguments import integers
from pteron.ops import Kind, Target
from pteron.ops.operand import HostArray
from pteron.ops.rewrite import JOINS
from pteron.passes import prepare
from pteron.passes.rewrite import switched_on
from pteron.plan import Compiled
from pteron.runtime import Method, Program, ValueSpec
from pteron.runtime.loaded_method import LoadedMethod
from pteron.runtime.specs import describe
from pteron.tools import Progress, silent
from pteron.tools.accuracy import Errors, Rounding, Tolerances, held_type, measure, rounding_of_all
from pteron.tools.compare.report import NodeResult, Verdict
from pteron.tools.compare.steps import NoReferenceError, SteppedSession, StepRecord
from pteron.tools.graph_structure import leaves
from pteron.tools.inputs import fill_inputs
from pteron.tools.workload import Prompt, Selection

ComparedWork: TypeAlias = Selection | Prompt
Expected: TypeAlias = Mapping[int, HostArray | int]  # the outputs of a step by id: arrays and live integers
Evaluate: TypeAlias = Callable[[StepRecord], Expected]  # raises NoReferenceError if a step has no reference


class Observer(Protocol):
    """What gets every step of a method that runs."""

    call: str  # the running call

    def observe(self, delegate: int, record: StepRecord, index: int, count: int) -> None: ...


def check_prompt(program: Program, prompt: Prompt) -> None:
    """Refuse a prompt that the context does not hold before any step runs."""
    declared = *_constants(program, "get_max_context_len"), *_constants(program, "get_max_seq_len"), 0
    context = declared[0]
    if context and len(prompt.tokens) + prompt.steps > context:
        raise InputError(
            f"{program.file.name}: {len(prompt.tokens)} tokens and {prompt.steps} steps exceed the context, "
            f"which holds {context}"
        )


def _call(method: Method, specs: Sequence[ValueSpec], work: ComparedWork, observer: Observer) -> ComparedWork:
    """Call a method; the same work, with all inputs."""
    if isinstance(work, Selection):
        inputs = fill_inputs(specs, work.inputs, work.sizes, work.seed)
        method(*(given.value for given in inputs))
        return Selection(inputs=inputs)
    if len(specs) != 2 or len(specs[0].shape_max) != 2:
        taken = ", ".join(map(str, specs))
        raise InputError(f"tokens: {method.name} takes ({taken}), not (tokens [1, steps], position [1])")
    most = specs[0].shape_max[1]
    pending, position, label = list(work.tokens), 0, "prefill"
    for step in range(work.steps + 1):
        while pending:
            chunk, pending = pending[:most], pending[most:]
            observer.call = f"{label} at {position}" if position else label
            outputs = method(np.array([chunk], np.int64), np.full(specs[1].shape_max, position, np.int64))
            position += len(chunk)
        if step < work.steps:
            logits = np.asarray(outputs[0])
            pending, label = [int(np.argmax(logits.reshape(-1, logits.shape[-1])[-1]))], "decode"
    return work


def run_steps(
    program: Program,
    name: str,
    target: Target,
    rewrites: Collection[str],
    work: ComparedWork,
    observer: Observer,
) -> ComparedWork:
    """Call a method, with its own states, and pass every step of its delegates to the observer; the same
    work, with all inputs."""
    record = program.record(name)
    operators = [operator for each in record.operators if (operator := find_operator(each)) is not None]
    with closing(LoadedMethod(program.file.name, record, (), operators, program.device)) as loaded:
        compiled = [Compiled(prepare(graph, rewrites), target) for graph in program.graphs(name)]
        for index, each in enumerate(compiled):
            observe = partial(observer.observe, index)
            loaded.sessions.append(SteppedSession(each, program.device, observe))
        inputs, _ = describe(record, compiled)
        with closing(Method(loaded)) as method:
            return _call(method, inputs, work, observer)


def _constants(program: Program, name: str) -> tuple[int, ...]:
    """The integers that a constant method returns; none without such a method."""
    where = f"{program.file.name}: results of {name}"
    return tuple(integers(where, program[name]())) if name in program else ()


def check_rewrites(
    checker: StepChecker,
    program: Program,
    name: str,
    target: Target,
    work: ComparedWork,
) -> None:
    """Check every step that a rewrite or join has changed against its original nodes.

    Rewrites are switched on one after the other, in the order in which they apply: a step that changed was
    made by the last one.
    """
    names = switched_on()
    structure = _structure(program, name, ())
    checker.known = set()
    for count in range(len(names) + 1):
        on = names[:count]
        checker.rewrite = on[-1] if on else ""
        changed = _structure(program, name, on)
        if on and on[-1] not in JOINS and changed == structure:
            continue  # it does not apply to this program
        structure = changed
        checker.made = set()
        run_steps(program, name, target, on, work, checker)
        checker.known = checker.made


def _structure(program: Program, name: str, rewrites: tuple[str, ...]) -> tuple[object, ...]:
    """The calls of a method's graphs after these rewrites."""
    return tuple(
        tuple((call.operator.name, call.nodes) for call in prepare(graph, rewrites).calls)
        for graph in program.graphs(name)
    )


@dataclass(frozen=True, slots=True)
class Departure:
    """A step with an output beyond its tolerance."""

    row: NodeResult
    record: StepRecord
    expected: Expected


@dataclass(slots=True)
class StepChecker:
    evaluate: Evaluate
    tolerances: Tolerances
    progress: Progress = silent
    adds_up: bool = False  # whether outputs also have the errors of the nodes before
    call: str = ""  # the running call
    rewrite: str = ""  # the rewrite under test
    known: set[object] | None = None  # the steps before this rewrite, which are not checked again
    made: set[object] = field(default_factory=set)  # the steps of the running calls
    rows: list[NodeResult] = field(default_factory=list)
    departure: Departure | None = None  # the first

    def observe(self, delegate: int, record: StepRecord, index: int, count: int) -> None:
        signature = (self.call, delegate, record.step.signature)
        self.made.add(signature)
        if self.known is not None and (not self.rewrite or signature in self.known or record.step.is_on_host):
            return
        self.progress(f"comparing {self.call}".rstrip() + ", step", index + 1, count)
        for row, expected in self._rows(delegate, record):
            self.rows.append(row)
            if row.verdict is Verdict.DEPARTS and self.departure is None:
                self.departure = Departure(row, record, expected)

    def _rows(self, delegate: int, record: StepRecord) -> Iterator[tuple[NodeResult, Expected]]:
        step = record.step
        for tensor in record.lost:
            reason = "its memory was overwritten after its node ran"
            yield self._row(delegate, record, tensor, Verdict.DEPARTS, reason), {}
        is_prepack = all(call.operator.kind is Kind.PREPACK for call in step.calls)  # a constant or a state
        if not step.is_on_host and (is_prepack or not record.after):
            yield self._row(delegate, record, None, Verdict.IDLE), {}
            return
        try:
            expected = self.evaluate(record)
        except (NoReferenceError, PteronError) as error:
            yield self._row(delegate, record, None, Verdict.UNCHECKED, str(error)), {}
            return
        for symbol in leaves(*(node.args[-1] for node in step.nodes)) if step.is_on_host else ():
            if isinstance(symbol, Tensor):
                continue
            wanted, found = expected.get(symbol.id), record.integers[symbol.id]
            verdict, reason = Verdict.IDLE if wanted is None else Verdict.WITHIN, ""
            if wanted is not None and wanted != found:
                verdict, reason = Verdict.DEPARTS, f"{found} instead of {wanted}"
            yield self._row(delegate, record, symbol, verdict, reason=reason), expected
        for tensor in record.shown:
            yield self._tensor(delegate, record, tensor, expected), expected

    def _tensor(self, delegate: int, record: StepRecord, tensor: Tensor, expected: Expected) -> NodeResult:
        if tensor.id not in expected:
            reason = "the reference gives no value for it"
            return self._row(delegate, record, tensor, Verdict.UNCHECKED, reason)
        found, wanted = record.after[tensor.id], np.asarray(expected[tensor.id])
        if not tensor.dtype.is_float:
            wanted = wanted.astype(found.dtype)  # wraps to 32 bits, as on GPUs
        rounding = rounding_of_all(node.name for node in record.step.nodes)
        if self.adds_up and rounding in (Rounding.MOVED, Rounding.ELEMENTS):
            rounding = Rounding.SUMS
        held = held_type(tensor.dtype, found, wanted)
        errors = measure(found, wanted, held, self.tolerances.bound(rounding, held))
        verdict = Verdict.DEPARTS if errors.departs else Verdict.WITHIN
        return self._row(delegate, record, tensor, verdict, errors.problem or "", errors)

    def _row(
        self,
        delegate: int,
        record: StepRecord,
        value: Tensor | SymInt | None,
        verdict: Verdict,
        reason: str = "",
        errors: Errors | None = None,
    ) -> NodeResult:
        nodes = record.step.nodes
        shape = list(record.shapes.get(value.id, value.shape_max)) if isinstance(value, Tensor) else ""
        kind = f"{value.dtype}{shape}" if isinstance(value, Tensor) else "integer"
        return NodeResult(
            self.call,
            delegate,
            tuple(node.index for node in nodes),
            tuple(node.name for node in nodes),
            record.step.ran,
            f"%{value.id} {kind}" if value is not None else "",
            verdict,
            errors,
            reason,
            self.rewrite,
            record.step.kernels,
        )
