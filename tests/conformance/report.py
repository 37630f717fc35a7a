"""Results -> docs/operators.md, and docs/operators-left.csv with every case that did not pass."""

from __future__ import annotations

import csv
import datetime
import io
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.metadata import version

from operator_table import read_table

import pteron
from conformance.cache import ROOT, read_results, results_of
from conformance.record import FAILURES, Result, cause_left
from conformance.suites import SUITES
from pteron.families.exporter_removed import REMOVED_BY_EXPORTER
from pteron.passes import is_available

PAGE = ROOT / "docs" / "operators.md"
CASES = ROOT / "docs" / "operators-left.csv"
LIVE_MIN = 3  # input shapes that one program must have run at
PACKAGES = ("executorch", "torch", "torchao", "wgpu")
COLUMNS = ("pass", *FAILURES, "not delegated", "export failed", "skipped")
UNDELEGATED = "the partitioner leaves the whole program to the host"

ResultsBySuite = Mapping[str, Sequence[Result]]


@dataclass(slots=True)
class Operator:
    """What the suites' results say of one operator."""

    passed: int = 0
    met: int = 0
    element_types: set[str] = field(default_factory=set)
    live_shapes: int = 0  # the most that one passing program with dynamic dims ran at


@dataclass(frozen=True, slots=True)
class Left:
    """Cases that did not pass for one cause, in all suites where exactly these cases did not."""

    suites: tuple[str, ...]
    outcome: str
    cause: str
    names: tuple[str, ...]


def write_page(adapter: str, driver: str) -> None:
    """Write the page and its list of cases, over all results that are kept for an adapter."""
    results = {suite: list(_results(adapter, suite)) for suite in SUITES}
    waiting = {
        name: len(suite.recipes()) - len(list(results_of(adapter, name).glob("*.json")))
        for name, suite in SUITES.items()
    }
    day = datetime.datetime.now(tz=datetime.UTC).date()
    PAGE.write_text("\n".join(page(results, waiting, f"{adapter} ({driver})", str(day))) + "\n")
    CASES.write_text(cases_left(results))


def page(results: ResultsBySuite, waiting: Mapping[str, int], adapter: str, day: str) -> Iterator[str]:
    """The lines of the page; `waiting` are the recipes of each suite that were not run yet."""
    packages = ", ".join(f"{name} {version(name)}" for name in PACKAGES)
    yield from ("# Operators", "")
    yield from (
        "Written by `scripts/conformance`, which runs ExecuTorch's own test suites through Pteron.",
        "",
    )
    yield from (f"{day} · Pteron {pteron.__version__} · {packages} · adapter: {adapter}", "")
    yield from _totals(results, waiting)
    yield from _operators(results)
    yield from _forms(results.get("forms", ()))
    yield from _left(results)


def _results(adapter: str, suite: str) -> Iterator[Result]:
    for path in sorted(results_of(adapter, suite).glob("*.json")):
        kept = read_results(path)
        yield from kept[1] if kept else ()


def _totals(results: ResultsBySuite, waiting: Mapping[str, int]) -> Iterator[str]:
    yield from ("## Suites", "")
    yield "A case is one exported program, with the calls that its suite makes and PyTorch's results."
    yield "A recipe is a test of the suite and makes one or more cases; the last column counts those not run."
    yield ""
    yield "| suite | " + " | ".join((*COLUMNS, "recipes left")) + " |"
    yield "|---|" + "--:|" * (len(COLUMNS) + 1)
    for suite, found in results.items():
        outcomes = Counter(result.outcome for result in found)
        counts = " | ".join(str(outcomes[column]) for column in COLUMNS)
        yield f"| {SUITES[suite].title} | {counts} | {waiting[suite]} |"
    yield ""


def _operators(results: ResultsBySuite) -> Iterator[str]:
    operators = measure({suite: found for suite, found in results.items() if suite != "forms"})
    facts = read_table()
    yield from ("## Each operator", "")
    yield "Tested types: those of programs that passed. Exported types: those that the exporter may emit."
    yield "Live shapes: at how many input shapes one program with dynamic dims passed."
    yield "Conformance: cases passed, of those with the operator in a delegate. [Forms](#forms) are extra."
    yield "C++ WebGPU: whether ExecuTorch's own backend has the operator, or has it at fixed shapes only."
    yield ""
    yield "| operator | Pteron | tested types | exported types | live shapes | conformance | C++ WebGPU |"
    yield "|---|---|---|---|---|--:|---|"
    for name, fact in facts.items():
        if name not in REMOVED_BY_EXPORTER:
            yield _row(name, operators.get(name, Operator()), fact)
    for name in sorted(operators.keys() - facts.keys()):
        yield _row(name, operators[name], {"resizable": "yes", "cpp_webgpu": "no", "inputs": ""})
    yield from ("", "These operators are in the exporter's registry, but never in a program:", "")
    yield from (f"- `{name}`: {reason}" for name, reason in REMOVED_BY_EXPORTER.items())
    yield ""


def _row(name: str, operator: Operator, fact: Mapping[str, str]) -> str:
    is_live = operator.live_shapes >= LIVE_MIN
    if is_live:
        live = f"yes, {operator.live_shapes}"
    else:
        live = "in no suite" if fact["resizable"] == "yes" else "never exported"
    conformance = f"{operator.passed}/{operator.met}" if operator.met else "in no suite"
    types = " ".join(sorted(operator.element_types)) or "none"
    available = "yes" if is_available(name) else "**no**"
    cpp = {"live": "yes", "fixed": "fixed shapes"}.get(fact["cpp_webgpu"], fact["cpp_webgpu"])
    exported = fact["inputs"].replace("/", " ")
    return f"| `{name}` | {available} | {types} | {exported} | {live} | {conformance} | {cpp} |"


def _forms(results: Sequence[Result]) -> Iterator[str]:
    """A row for each operator: the forms that run, those that do not and why."""
    if not results:
        return
    rows: defaultdict[str, defaultdict[tuple[str, str], dict[str, list[str]]]]
    rows = defaultdict(lambda: defaultdict(dict))  # operator -> outcome and cause -> form -> types
    for result in results:
        operator, dtype, shapes, expression = result.name.split("/", 3)
        forms = rows[operator][result.outcome, result.cause]
        forms.setdefault(f"`{expression}` of {shapes}", []).append(dtype)
    yield from ("## Forms", "")
    yield "Forms of each operator that the exporter's own checks accept: ranks, element types,"
    yield "negative dims, optional arguments, numbers as tensors. The host runs those that are not delegated."
    yield from ("", "| operator | forms that pass | not delegated | other |", "|---|---|---|---|")
    for operator, by_outcome in sorted(rows.items()):
        passed, left = (_typed(by_outcome.pop((name, ""), {})) for name in ("pass", "not delegated"))
        other = (f"{_typed(forms)}: {name}, {_plain(why)}" for (name, why), forms in by_outcome.items())
        yield f"| `{operator}` | {passed} | {left} | {'; '.join(other)} |"
    yield ""


def _typed(forms: Mapping[str, Sequence[str]]) -> str:
    """Forms that have the same types together, the types behind them."""
    by_types: defaultdict[str, list[str]] = defaultdict(list)
    for form, dtypes in forms.items():
        by_types[" ".join(dtypes)].append(form)
    return "; ".join(f"{', '.join(same)} in {dtypes}" for dtypes, same in by_types.items())


def measure(results: ResultsBySuite) -> dict[str, Operator]:
    """What is known of each operator that was in a delegate of some case."""
    operators: defaultdict[str, Operator] = defaultdict(Operator)
    for result in (result for found in results.values() for result in found):
        for name, element_types in (result.operators or {}).items():
            operator = operators[name]
            operator.met += 1
            if result.outcome == "pass":
                operator.passed += 1
                operator.element_types.update(element_types)
                if result.is_dynamic:
                    operator.live_shapes = max(operator.live_shapes, result.shapes)
    return dict(operators)


def groups_left(results: ResultsBySuite) -> list[Left]:
    """The cases that did not pass, by outcome and cause; suites with the same cases share a group."""
    groups: defaultdict[tuple[str, str, tuple[str, ...]], list[str]] = defaultdict(list)
    for suite, found in results.items():
        names: defaultdict[tuple[str, str], list[str]] = defaultdict(list)
        for result in found:
            if result.outcome != "pass":
                undelegated = result.outcome == "not delegated" and not result.cause
                cause = cause_left(suite, result) or (UNDELEGATED if undelegated else result.cause)
                names[result.outcome, cause].append(result.name)
        for (outcome, cause), cases in names.items():
            groups[outcome, cause, tuple(sorted(cases))].append(suite)
    made = [Left(tuple(suites), *group) for group, suites in groups.items()]
    return sorted(made, key=lambda group: COLUMNS.index(group.outcome))


def _left(results: ResultsBySuite) -> Iterator[str]:
    yield from ("## Cases that did not pass", "")
    yield f"[{CASES.name}]({CASES.name}) lists every case by name. Suites have the names that"
    yield (
        "`scripts/conformance --suite` takes: "
        + ", ".join(f"`{suite}`" for suite in results)
        + ", in the order of the first table."
    )
    yield ""
    yield "| outcome | cases | suites | cause |"
    yield "|---|--:|---|---|"
    for group in groups_left(results):
        suites = ", ".join(f"`{suite}`" for suite in group.suites)
        yield f"| {group.outcome} | {len(group.names)} | {suites} | {_plain(group.cause)} |"


def cases_left(results: ResultsBySuite) -> str:
    """The same as CSV, a line for each case."""
    text = io.StringIO()
    lines = csv.writer(text, lineterminator="\n")
    lines.writerow(("suites", "outcome", "case", "cause"))
    for group in groups_left(results):
        lines.writerows((" ".join(group.suites), group.outcome, name, group.cause) for name in group.names)
    return text.getvalue()


def _plain(text: str) -> str:
    """Text that Markdown shows as it is."""
    return "".join(f"\\{letter}" if letter in "<>_*|[]" else letter for letter in text)
