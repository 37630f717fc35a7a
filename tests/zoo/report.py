"""Results -> docs/models.md."""

from __future__ import annotations

import datetime
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from statistics import median

from zoo.model import Model
from zoo.result import ERROR_MIN, ERROR_WITHOUT_EAGER, RATIO_MAX, Result

PAGE = Path(__file__).parents[2] / "docs" / "models.md"
LANGUAGE = "## Language models\n"  # the last section
PACKAGES = ("torch", "executorch", "torchvision", "timm", "transformers")
INTRODUCTION = """\
Written by `scripts/models`, which puts architectures with random weights through `pteron.compile`: few
layers, small images, batch 2 (1 for video). `--help` lists its options. Programs of language models, which
are built without PyTorch, have [a section of their own](#language-models). Published programs are loaded
[by name](python.md#load-and-call); [zoo.md](zoo.md) has programs as ExecuTorch's own partitioners write them.
"""
LEGEND = """\
- on the GPU: share of operators in delegates, and the number of delegates.
- error: the largest difference to the same module in float64, divided by the largest value of that output;
  eager: the same of PyTorch in float32. Right: at most {ratio:g} times eager's error, or at most {least:.0e}.
- Without a value for eager, the module does not run in float64; then PyTorch's own float32 outputs are the
  reference, and right means at most {without:.0e}.
- compile: processor seconds, without imports.
"""


def write_page(results: Mapping[str, Result], models: Mapping[str, Model]) -> None:
    """Replace the page, but for the section of language models, which `--llm` writes."""
    _, heading, section = (PAGE.read_text() if PAGE.exists() else "").partition(LANGUAGE)
    page = "\n".join(_page(results, models)) + "\n"
    PAGE.write_text(f"{page}\n{heading}{section}" if heading else page)


def _page(results: Mapping[str, Result], models: Mapping[str, Model]) -> Iterator[str]:
    known = list(results.values())
    ran = [result for result in known if result.outcome in ("right", "wrong")]
    yield "# Models\n"
    yield INTRODUCTION
    day = datetime.datetime.now(tz=datetime.UTC).date()
    yield f"{day} · {', '.join(versions(*PACKAGES))}\n"
    whole = sum(result.is_whole for result in known)
    seconds = median([result.compile_s for result in ran] or [0])
    yield f"{len(known)} architectures: {whole} run as one delegate, all on the GPU; {outcomes(known)}."
    yield f"Median processor time to compile: {seconds:.0f} s."
    yield from mixed(known)
    if len(known) < len(models):
        yield f"{len(models) - len(known)} further architectures of the table have not run."
    yield ""
    yield LEGEND.format(ratio=RATIO_MAX, least=ERROR_MIN, without=ERROR_WITHOUT_EAGER)
    inexact = [r.name for r in known if r.outcome == "right" and r.eager is not None and not r.is_exact]
    if inexact:
        named = ", ".join(f"`{name}`" for name in inexact)
        yield f"Above {RATIO_MAX:g} times eager's error, but at most {ERROR_MIN:.0e}: {named}.\n"
    groups: dict[str, list[Result]] = defaultdict(list)
    for name, result in results.items():
        groups[models[name].group].append(result)
    for group, members in groups.items():
        yield from _table(group, members)
    yield from _left(known)


def mixed(results: Sequence[Result]) -> Iterator[str]:
    """Tell where results are of several versions of Pteron."""
    if len(sources := {result.sources for result in results}) > 1:
        yield f"Measured with {len(sources)} versions of Pteron; `--rerun all` measures all again."


def versions(*packages: str) -> Iterator[str]:
    for name in packages:
        try:
            yield f"{name} {version(name)}"
        except PackageNotFoundError:
            continue


def _table(group: str, members: Sequence[Result]) -> Iterator[str]:
    yield f"## {group.capitalize()}\n"
    yield "| model | on the GPU | delegates | error | eager | compile | |"
    yield "|---|--:|--:|--:|--:|--:|---|"
    for result in members:
        if result.outcome in ("right", "wrong"):
            share = result.gpu / max(1, result.gpu + result.host)
            cells = [
                f"{share:.0%}",
                str(result.delegates),
                error_text(result.error),
                error_text(result.eager),
            ]
            left = Counter({name: count for count, name, _ in result.left})
            hosted = ", ".join(f"{count} `{name}`" for name, count in left.most_common())
            note = f"host: {hosted}" if hosted else ""
            note = "; ".join(filter(None, ["**wrong**" if result.outcome == "wrong" else "", note]))
        else:
            cells = ["", "", "", ""]
            note = f"**{result.outcome}**: {plain(result.reason)}"
        yield f"| `{result.name}` | {' | '.join(cells)} | {result.compile_s:.0f} s | {note} |"
    yield ""


def _left(results: Sequence[Result]) -> Iterator[str]:
    """Operators on the host, with each reason."""
    models: dict[tuple[str, str], set[str]] = defaultdict(set)
    counts: Counter[tuple[str, str]] = Counter()
    for result in results:
        for count, name, reason in result.left:
            models[name, reason].add(result.name)
            counts[name, reason] += count
    if not counts:
        return
    yield "## Operators on the host\n"
    yield "| operator | uses | models | reason |"
    yield "|---|--:|---|---|"
    for (name, reason), count in counts.most_common():
        yield f"| `{name}` | {count} | {', '.join(sorted(models[name, reason]))} | {plain(reason)} |"


def outcomes(results: Sequence[Result]) -> str:
    counts = Counter(result.outcome for result in results)
    return ", ".join(f"{count} {outcome}" for outcome, count in counts.most_common())


def error_text(value: float | None) -> str:
    return "" if value is None else f"{value:.1e}"


def plain(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")[:250]
