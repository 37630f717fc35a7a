"""`compare`: a program and inputs -> a report of the first node whose output departs from a reference, and of
all other nodes."""

from __future__ import annotations

import os
import time
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from pteron.errors import InputError, PteronError
from pteron.extras import check_installed
from pteron.format.records import KernelCall
from pteron.format.source import Source
from pteron.gpu import Device
from pteron.graph import Graph
from pteron.ops import Target
from pteron.passes.rewrite import switched_on
from pteron.runtime import Program
from pteron.tools import Progress, silent
from pteron.tools.accuracy import Tolerances
from pteron.tools.compare.calls import (
    ComparedWork,
    Departure,
    Evaluate,
    StepChecker,
    check_prompt,
    check_rewrites,
    run_steps,
)
from pteron.tools.compare.other import OtherProgram
from pteron.tools.compare.report import Comparison, NodeResult, Verdict
from pteron.tools.compare.reproducer import save
from pteron.tools.compare.subgraph import extract_subgraph, rerun_step
from pteron.tools.run import place_of
from pteron.tools.workload import Prompt, Selection, method_name, open_program

_SAME_KERNELS = ", which is what runs anyway: only differences from run to run can show"
ROUTES = {"software": True, "hardware": False}  # whether kernels for CPUs are chosen
FORMS = "float64, adapter=NAME, route=software, route=hardware, rewrites, program=FILE"
_WITHOUT_VALUE, _WITH_VALUE = ("float64", "rewrites"), ("adapter", "route", "program")


def compare(
    path: str | os.PathLike[str],
    work: ComparedWork | None = None,
    *,
    reference: str = "float64",
    tolerances: Tolerances | None = None,
    each_node: bool = False,
    save_to: str | os.PathLike[str] | None = None,
    data: Iterable[Source] = (),
    device: Device | str | None = None,
    digits: int | None = None,
    products: str | None = None,
    progress: Progress = silent,
) -> Comparison:
    """Compare the outputs of every node of a program on a GPU with a reference on the same inputs.

    `reference` is one of `float64` (PyTorch), `adapter=NAME`, `route=software` or `route=hardware` (the
    kernels for the other kind of adapter), `rewrites` (rewritten nodes against the original ones) and
    `program=FILE` (another program on the same inputs; both run each node alone).

    `work` is a Selection of a method and its inputs (default: `forward` with random inputs of the maximum
    shapes), or a Prompt of a language model. Nodes run as in plain calls, several as one where rewrites fuse
    them, or each alone (`each_node`). `save_to` is a folder for the inputs and outputs of the first
    departure.
    """
    chosen = Reference.of(reference)
    if chosen.kind == "float64":
        check_installed(("torch",), "a float64 reference", "host")
    started = time.perf_counter()
    work = work or Selection()
    with open_program(path, data := list(data), device, digits=digits, products=products) as program:
        name = method_name(program, work.method)
        if isinstance(work, Prompt):
            check_prompt(program, work)
        if not any(graph.nodes for graph in program.graphs(name)):
            raise InputError(f"{program.file.name}, method {name}: no node runs on a GPU to be compared")
        allowed = tolerances or Tolerances()
        comparer = _Comparer(program, name, work, chosen, allowed, each_node, progress, data)
        rows, departure = comparer.run()
        culprit = folder = None
        if departure:
            culprit = comparer.culprit(departure)
        if departure and save_to is not None and not departure.record.step.is_on_host:
            folder = save(departure, comparer.settings(departure), Path(save_to))
        return comparer.report(rows, culprit, folder, time.perf_counter() - started)


@dataclass(slots=True)
class _Comparer:
    program: Program
    name: str
    work: ComparedWork
    reference: Reference
    tolerances: Tolerances
    each_node: bool
    progress: Progress
    data: Sequence[Source]
    other: OtherProgram | None = None  # if the reference is a program

    def run(self) -> tuple[list[NodeResult], Departure | None]:
        kind, program, name = self.reference.kind, self.program, self.name
        if kind == "rewrites":
            evaluate: Evaluate = partial(rerun_step, device=self.device, target=self.target, rewrites=())
            checker = StepChecker(evaluate, self.tolerances, self.progress)
            check_rewrites(checker, program, name, self.target, self.work)
        else:
            work = self._run_other() if kind == "program" else self.work
            checker = StepChecker(self.evaluate(), self.tolerances, self.progress, self.other is not None)
            run_steps(program, name, self.target, self.rewrites, work, checker)
        return checker.rows, checker.departure

    def _run_other(self) -> ComparedWork:
        """Run the program that is the reference; the same work, with its inputs."""
        with open_program(self.reference.value, self.data, self.device) as other:
            name = method_name(other, self.name if self.name in other else None)
            graphs = other.graphs(name), self.program.graphs(self.name)
            self.other = OtherProgram(Path(other.file.name).name, *graphs, self.progress)
            return run_steps(other, name, self.target, (), self.work, self.other)

    def culprit(self, departure: Departure) -> str:
        evaluate = self.evaluate() if self.reference.kind == "float64" else None
        found = find_culprit(departure, evaluate, self.device, self.target, self.tolerances)
        why = self.other.explain(departure.row.delegate, departure.record) if self.other else ""
        return f"{found}: {why}" if why else found

    @property
    def device(self) -> Device:
        return self.program.device

    @property
    def target(self) -> Target:
        """The target of plain calls of the program."""
        return self.program.precision.of(self.device.target)

    @property
    def rewrites(self) -> tuple[str, ...]:
        """The rewrites that are on while nodes run."""
        alone = self.each_node and self.reference.kind != "rewrites"
        return () if alone or self.reference.kind == "program" else switched_on()

    def evaluate(self) -> Evaluate:
        if self.reference.kind == "float64":
            from pteron.tools.compare.float64 import float64  # imports PyTorch

            return float64
        if self.other is not None:
            return self.other.evaluate
        device, target = self.device, self.target
        if self.reference.kind == "adapter":
            device = Device.open(self.reference.value)
            target = self.program.precision.of(device.target)
        else:
            target = replace(target, is_cpu=ROUTES[self.reference.value])
        return partial(rerun_step, device=device, target=target, rewrites=self.rewrites)

    def settings(self, departure: Departure) -> dict[str, Any]:
        """What node.json says about the run."""
        rewrites = self.rewrites
        if departure.row.rewrite:  # later ones were still off
            rewrites = rewrites[: rewrites.index(departure.row.rewrite) + 1]
        return {
            "program": Path(self.program.file.name).name,
            "method": self.name,
            "reference": str(self.reference),
            "rewrites": list(rewrites),
            "target": {
                "is_cpu": self.target.is_cpu,
                "digits": self.target.digits,
                "products": self.target.products,
            },
            "adapter": {"name": str(self.device.adapter), "driver": self.device.adapter.driver},
        }

    def report(
        self, rows: Sequence[NodeResult], culprit: str | None, saved: str | None, seconds: float
    ) -> Comparison:
        method = next(record for record in self.program.file.methods if record.name == self.name)
        hosted = (call for call in method.instructions if isinstance(call, KernelCall))
        graphs = self.program.graphs(self.name)
        checked, idle, unchecked = _count_nodes(rows, graphs, of_all=self.reference.kind != "rewrites")
        return Comparison(
            program=Path(self.program.file.name).name,
            method=self.name,
            adapter=place_of(self.program),
            reference=self._reference_text(),
            rows=tuple(rows),
            nodes=sum(len(graph.nodes) for graph in graphs),
            checked=checked,
            idle=idle,
            unchecked=unchecked,
            host_operators=dict(Counter(method.operators[call.operator] for call in hosted)),
            culprit=culprit,
            saved=saved,
            seconds=seconds,
        )

    def _reference_text(self) -> str:
        kind, value = self.reference.kind, self.reference.value
        is_same = (kind == "route" and ROUTES[value] == self.device.target.is_cpu) or (
            kind == "adapter" and Device.open(value) is self.device
        )
        return f"{self.reference}{_SAME_KERNELS if is_same else ''}"


def find_culprit(
    departure: Departure, evaluate: Evaluate | None, device: Device, target: Target, tolerances: Tolerances
) -> str:
    """The node that a departure comes from, in words. If several nodes ran as one and the reference evaluates
    single nodes, they run again one by one on the same inputs."""
    nodes = departure.record.step.nodes
    if len(nodes) == 1:
        return f"node {nodes[0].index} {nodes[0].name}"
    listed = f"nodes {departure.row.where}, which run as {departure.row.ran}"
    if departure.row.rewrite:
        return f"{listed} by {departure.row.rewrite}"
    if evaluate is None:
        return listed
    checker = StepChecker(evaluate, tolerances)
    observe = partial(checker.observe, departure.row.delegate)
    try:
        extract_subgraph(departure.record).step(device, target, (), observe)
    except PteronError as error:
        return f"{listed}; they could not be run one by one: {error}"
    if checker.departure is None:
        return f"{listed}: each node alone is correct, so the fused operator is wrong"
    (node, *_) = checker.departure.record.step.nodes
    return f"node {node.index} {node.name}, which also departs alone, part of {listed}"


def _count_nodes(
    rows: Sequence[NodeResult], graphs: Sequence[Graph], *, of_all: bool
) -> tuple[int, int, Mapping[str, str]]:
    """The number of nodes with all outputs compared, the number that ran no kernel, and why others were not
    checked; `of_all` includes nodes without any result."""
    found: dict[tuple[int, int], set[Verdict]] = defaultdict(set)
    reasons: dict[tuple[int, int], str] = {}
    for row in rows:
        for index in row.nodes:
            place = (row.delegate, index)
            found[place].add(row.verdict)
            if row.verdict is Verdict.UNCHECKED:
                reasons[place] = row.reason
    unchecked: dict[str, str] = {}
    checked = idle = 0
    for delegate, graph in enumerate(graphs):
        for node in graph.nodes:
            place = (delegate, node.index)
            verdicts = found.get(place)
            if verdicts == {Verdict.IDLE}:
                idle += 1
            elif place in reasons or (of_all and verdicts is None):
                where = f"delegate {delegate} node" if len(graphs) > 1 else "node"
                unchecked[f"{where} {node.index} {node.name}"] = reasons.get(place, "it did not run")
            elif verdicts is not None:
                checked += 1
    return checked, idle, unchecked


@dataclass(frozen=True, slots=True)
class Reference:
    """A kind of reference and its value: an adapter, a route or a file."""

    kind: str
    value: str = ""

    def __str__(self) -> str:
        return f"{self.kind}={self.value}" if self.value else self.kind

    @classmethod
    def of(cls, text: str) -> Reference:
        """Parse one of FORMS."""
        kind, _, value = text.partition("=")
        is_known = kind in (_WITH_VALUE if value else _WITHOUT_VALUE)
        if not is_known or (kind == "route" and value not in ROUTES):
            raise InputError(f"reference {text!r}: expected one of {FORMS}")
        return cls(kind, value)
