"""A program and inputs -> a report of the first node whose output departs from a reference, and of all
others."""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from pteron.errors import InputError
from pteron.extras import check_installed
from pteron.format import KernelCall, load_weights
from pteron.gpu import Device
from pteron.llm.model_files import program_file
from pteron.ops import Target
from pteron.passes.rewrite import switched_on
from pteron.runtime import Program, load
from pteron.runtime.program import Source
from pteron.tools.compare.choice import ROUTES, Choice
from pteron.tools.compare.culprit import culprit_of
from pteron.tools.compare.extract import run_again
from pteron.tools.compare.judging import Departure, Expect, Judge
from pteron.tools.compare.outputs import expected_rows, exported_rows
from pteron.tools.compare.report import Comparison, Row
from pteron.tools.compare.rewriting import rewrites_judged
from pteron.tools.compare.running import Calls, described, stepped, target_of
from pteron.tools.compare.saved import Circumstances, save
from pteron.tools.compare.summary import counted_nodes
from pteron.tools.compare.tolerances import Tolerances
from pteron.tools.inputs import Input, LiveSize
from pteron.tools.progress import Progress, silent
from pteron.tools.run import method_name


def compare(
    path: str | os.PathLike[str],
    *,
    reference: str = "float64",
    method: str | None = None,
    inputs: Sequence[Input] = (),
    sizes: Sequence[LiveSize] = (),
    seed: int = 0,
    tokens: Sequence[int] = (),
    steps: int = 0,
    tolerances: Tolerances | None = None,
    each_node: bool = False,
    save_to: str | os.PathLike[str] | None = None,
    data: Iterable[Source] = (),
    device: Device | str | None = None,
    digits: int | None = None,
    progress: Progress = silent,
) -> Comparison:
    """Compare what each node of a program gives on a GPU with a reference, on the inputs that the node had
    there.

    `reference` is one of `float64` (what operators mean, in PyTorch), `adapter=NAME`, `route=software` or
    `route=hardware` (the kernels for the other kind of adapter), `rewrites` (what these make of nodes
    beside the nodes themselves), `expected` (a bundled program's outputs) and `exported=FILE.pt2` (a
    torch.export program).

    Inputs that are not given are random, of a seed and of live sizes as `pteron run` takes them; `tokens`
    and `steps` are for language models. Nodes run as they do in plain calls, several as one where rewrites
    make them so, or (`each_node`) each alone. The first departure's inputs and outputs are saved to a
    folder, `save_to`.
    """
    choice = Choice.of(reference)
    if steps and not tokens:
        raise InputError("steps follow tokens: give some of these")
    if choice.kind == "float64":
        check_installed(("torch",), "a float64 reference", "host")
    began = time.perf_counter()
    calls = Calls(inputs, sizes, seed, tokens, steps)
    weights = list(data)
    with load(_program_path(path), weights, device, digits=digits) as program:
        name = method_name(program, method)
        calls.check(program)
        if choice.sees_nodes and not any(graph.nodes for graph in program.graphs(name)):
            raise InputError(f"{program.file.name}, method {name}: no node runs on a GPU, so none can depart")
        judging = _Judging(
            program, name, weights, calls, choice, tolerances or Tolerances(), each_node, progress
        )
        rows, departure = judging.judged()
        found = judging.culprit(departure) if departure else None
        folder = None
        if departure and save_to is not None and not departure.seen.step.is_on_host:
            folder = save(departure, judging.circumstances(departure), Path(save_to))
        return replace(judging.report(rows), culprit=found, saved=folder, seconds=time.perf_counter() - began)


@dataclass(slots=True)
class _Judging:
    """One comparison under way."""

    program: Program
    name: str
    data: Sequence[Source]
    calls: Calls
    choice: Choice
    tolerances: Tolerances
    each_node: bool
    progress: Progress

    def judged(self) -> tuple[list[Row], Departure | None]:
        if self.choice.kind == "expected":
            return expected_rows(self.program, self.name, self.tolerances), None
        if self.choice.kind == "exported":
            rows = exported_rows(self.program, self.name, self.calls, self.choice.value, self.tolerances)
            return rows, None
        if self.choice.kind == "rewrites":
            judge = self.judge(partial(run_again, device=self.device, target=self.target, rewrites=()))
            rewrites_judged(judge, self.program, self.name, self.weights, self.target, self.calls)
            return judge.rows, judge.departure
        judge = self.judge(self._expect())
        with stepped(
            self.program, self.name, self.weights, self.device, self.target, self.rewrites, judge
        ) as (method, specs):
            self.calls.make(method, specs, judge)
        return judge.rows, judge.departure

    def judge(self, expect: Expect) -> Judge:
        return Judge(expect, self.tolerances, self.progress)

    @property
    def device(self) -> Device:
        return self.program.device

    @property
    def target(self) -> Target:
        return target_of(self.program, self.device)

    @property
    def weights(self) -> dict[str, memoryview]:
        return load_weights(self.data)

    @property
    def rewrites(self) -> tuple[str, ...]:
        """What is on where nodes run."""
        return () if self.each_node and self.choice.kind != "rewrites" else switched_on()

    def _expect(self) -> Expect:
        if self.choice.kind == "float64":
            from pteron.tools.compare.evaluating import float64  # imports PyTorch

            return float64
        device, is_cpu = self.device, None
        if self.choice.kind == "adapter":
            device = Device.open(self.choice.value)
        else:
            is_cpu = ROUTES[self.choice.value]
        target = target_of(self.program, device, is_cpu)
        return partial(run_again, device=device, target=target, rewrites=self.rewrites)

    def culprit(self, departure: Departure) -> str:
        expect = self._expect() if self.choice.kind == "float64" else None
        return culprit_of(departure, expect, self.device, self.target, self.tolerances)

    def circumstances(self, departure: Departure) -> Circumstances:
        rewrites = self.rewrites
        if departure.row.rewrite:  # those that were on by then
            rewrites = rewrites[: rewrites.index(departure.row.rewrite) + 1]
        return Circumstances(
            self.program.file.name, self.name, self.device, self.target, rewrites, str(self.choice)
        )

    def report(self, rows: Sequence[Row]) -> Comparison:
        record = next(record for record in self.program.file.methods if record.name == self.name)
        host = Counter(
            record.operators[call.operator] for call in record.instructions if isinstance(call, KernelCall)
        )
        graphs = self.program.graphs(self.name)
        checked, idle, unchecked = counted_nodes(rows, graphs, of_all=self.choice.kind != "rewrites")
        return Comparison(
            program=Path(self.program.file.name).name,
            method=self.name,
            adapter=str(self.device.adapter),
            reference=described(self.choice, self.device),
            rows=tuple(rows),
            nodes=sum(len(graph.nodes) for graph in graphs),
            checked=checked,
            idle=idle,
            unchecked=unchecked,
            host_operators=dict(host),
            culprit=None,
            saved=None,
            seconds=0.0,
        )


def _program_path(path: str | os.PathLike[str]) -> Path:
    """The program itself, or the one in a language model's folder."""
    given = Path(path)
    return program_file(given) if given.is_dir() else given
