"""A program -> a method whose delegates run step by step, and the calls that a comparison makes of it: once,
or once per rewrite."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Protocol

import numpy as np

from pteron.errors import InputError
from pteron.gpu import Device
from pteron.host.lookup import find_operator
from pteron.llm.arguments import integers
from pteron.ops import Target
from pteron.ops.rewrite import JOINS
from pteron.passes import prepare
from pteron.passes.rewrite import switched_on
from pteron.plan import Compiled
from pteron.runtime import Method, Program, ValueSpec
from pteron.runtime.loaded_method import LoadedMethod
from pteron.runtime.specs import describe
from pteron.runtime.states import with_external_data
from pteron.tools.compare.checker import StepChecker
from pteron.tools.compare.session import SteppedSession, StepRecord
from pteron.tools.inputs import Input, LiveSize, fill_inputs


class StepObserver(Protocol):
    """Receives every step of a delegate, by its index in the method."""

    call: str

    def observe(self, delegate: int, record: StepRecord, index: int, count: int) -> None: ...


@dataclass(frozen=True, slots=True)
class Calls:
    """The inputs of a method. With `tokens` it is a language model: a prefill of the tokens, then `steps`
    greedy decode steps."""

    inputs: Sequence[Input] = ()
    sizes: Sequence[LiveSize] = ()
    seed: int = 0
    tokens: Sequence[int] = ()
    steps: int = 0

    def check(self, program: Program) -> None:
        """Refuse invalid combinations before any step runs."""
        if not self.tokens:
            return
        if self.inputs or self.sizes:
            raise InputError("`tokens` cannot be combined with inputs or sizes")
        context, read = _context(program), len(self.tokens) + self.steps
        if context and read > context:
            raise InputError(
                f"{program.file.name}: {len(self.tokens)} tokens and {self.steps} steps exceed the context, "
                f"which holds {context}"
            )

    def make(self, method: Method, specs: Sequence[ValueSpec], observer: StepObserver) -> tuple[Any, ...]:
        """Make the calls; the outputs of the last one."""
        outputs: tuple[Any, ...] = ()
        if not self.tokens:
            return method(*(given.value for given in fill_inputs(specs, self.inputs, self.sizes, self.seed)))
        if len(specs) != 2 or len(specs[0].shape_max) != 2:
            taken = ", ".join(map(str, specs))
            raise InputError(f"tokens: {method.name} takes ({taken}), not (tokens [1, steps], position [1])")
        most = specs[0].shape_max[1]
        pending, position, label = list(self.tokens), 0, "prefill"
        for step in range(self.steps + 1):
            while pending:
                chunk, pending = pending[:most], pending[most:]
                observer.call = f"{label} at {position}" if position else label
                outputs = method(np.array([chunk], np.int64), np.full(specs[1].shape_max, position, np.int64))
                position += len(chunk)
            if step < self.steps:
                logits = np.asarray(outputs[0])
                pending, label = [int(np.argmax(logits.reshape(-1, logits.shape[-1])[-1]))], "decode"
        return outputs


@contextmanager
def stepped(
    program: Program,
    name: str,
    weights: Mapping[str, memoryview],
    device: Device,
    target: Target,
    rewrites: Collection[str],
    observer: StepObserver,
) -> Iterator[tuple[Method, tuple[ValueSpec, ...]]]:
    """A method with its own states that stops after every step of its delegates; and its inputs."""
    file = program.file
    record = next(record for record in file.methods if record.name == name)
    record = with_external_data(file, record, weights)
    operators = [operator for each in record.operators if (operator := find_operator(each)) is not None]
    loaded = LoadedMethod(file.name, record, (), operators, device)
    method = None
    try:
        for index, graph in enumerate(program.graphs(name)):
            compiled = Compiled(prepare(graph, rewrites), target)
            loaded.sessions.append(SteppedSession(compiled, device, partial(observer.observe, index)))
        specs = describe(record, [_compiled(session) for session in loaded.sessions])
        method = Method(loaded)
        yield method, specs[0]
    finally:
        if method is not None:
            method.close()
        loaded.close()


def target_of(program: Program, device: Device, is_cpu: bool | None = None) -> Target:
    """The target of plain calls of a program, or with kernels for the other kind of adapter."""
    target = replace(device.target, digits=program.digits)
    return target if is_cpu is None else replace(target, is_cpu=is_cpu)


def _context(program: Program) -> int:
    """The context length that a language model declares; 0 if it declares none."""
    for name in ("get_max_context_len", "get_max_seq_len"):
        values = (
            integers(f"{program.file.name}: results of {name}", program[name]()) if name in program else ()
        )
        if values:
            return values[0]
    return 0


def _compiled(session: object) -> Compiled:
    assert isinstance(session, SteppedSession)
    return session.compiled


def check_rewrites(
    checker: StepChecker,
    program: Program,
    name: str,
    weights: Mapping[str, memoryview],
    target: Target,
    calls: Calls,
) -> None:
    """Check every step that a rewrite or join has changed against its original nodes.

    Rewrites are switched on one after the other, in the order in which they apply: a step that changed was
    made by the last one.
    """
    names = switched_on()
    structure = _structure(program, name, ())
    before: set[object] = set()
    for count in range(len(names) + 1):
        on = names[:count]
        last = on[-1] if on else ""
        changed = _structure(program, name, on)
        if last and last not in JOINS and changed == structure:
            continue  # it does not apply to this program
        structure = changed
        changes = _ChangedSteps(checker, before, last)
        with stepped(program, name, weights, program.device, target, on, changes) as (method, specs):
            calls.make(method, specs, changes)
        before = changes.signatures


def _structure(program: Program, name: str, rewrites: tuple[str, ...]) -> tuple[object, ...]:
    """The calls of a method's graphs after these rewrites."""
    return tuple(
        tuple((call.operator.name, call.nodes) for call in prepare(graph, rewrites).calls)
        for graph in program.graphs(name)
    )


@dataclass(slots=True)
class _ChangedSteps:
    """Passes on the steps that did not exist before, and remembers all."""

    checker: StepChecker
    before: set[object]
    rewrite: str
    call: str = ""
    signatures: set[object] = field(default_factory=set)

    def observe(self, delegate: int, record: StepRecord, index: int, count: int) -> None:
        signature = (self.call, delegate, record.step.signature)
        self.signatures.add(signature)
        if self.rewrite and signature not in self.before and not record.step.is_on_host:
            self.checker.call, self.checker.rewrite = self.call, self.rewrite
            self.checker.observe(delegate, record, index, count)
