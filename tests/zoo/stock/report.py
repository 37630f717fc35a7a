"""Results of stock exports and of published programs -> docs/zoo.md."""

from __future__ import annotations

import datetime
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence

from zoo.report import error_text, mixed, outcomes, plain, versions
from zoo.result import ERROR_MIN, HALF, RATIO_MAX, StockResult
from zoo.runner import ROOT
from zoo.stock.published import PublishedResult, hosted
from zoo.stock.recipe import Recipe

PAGE = ROOT / "docs" / "zoo.md"
PUBLISHED = "## Published programs\n"  # the last section
INTRODUCTION = """\
Written by `scripts/zoo`: programs as ExecuTorch's own partitioners write them, run by `pteron.load`. Each
recipe is a small form of a published architecture with random weights (`tests/zoo/stock/`), exported as
ExecuTorch's documentation says:

```python
partitioner = VulkanPartitioner(options)  # or WebGPUPartitioner
exported = torch.export.export(module, inputs, dynamic_shapes=shapes)
program = to_edge_transform_and_lower(exported, partitioner=[partitioner]).to_executorch()
```

`scripts/zoo NAME ...` runs some recipes, `--help` lists the options. What `pteron.compile` makes of other
architectures is in [models.md](models.md).
"""
PROGRAMS = """\
Written by `scripts/zoo --published`: programs of others, by name and revision, on random inputs. Each node is
[compared](compare.md) with float64 PyTorch on the inputs that it had; differences are given as parts of
tolerances. Numbers are sums over methods.
"""
LEGEND = """\
- export: `Vulkan` or `WebGPU` partitioner; `f16`: with `force_fp16`; `dynamic`: called at several sizes;
  `state`: with `alias_buffer_mutations`, called several times in turn, and again after `reset()`.
- operators: how many, different ones in brackets; on the GPU: the share in delegates, and their number.
- error: the largest difference to the same module in float64, over all calls, divided by the largest value
  of that output; eager: the same of PyTorch in float32, or in float16 with `f16`. Right: at most
  {ratio:g} times eager's error, or at most {least:.0e} ({half:.0e} with `f16`).
- In quantised modules the reference rounds to integers as PyTorch does, and computes all else in float64.
- launches of one call, and its milliseconds with inputs and outputs on the host.
"""


def write_page(
    results: Mapping[str, StockResult],
    recipes: Mapping[str, Recipe],
    adapter: str,
    published: Sequence[PublishedResult],
) -> None:
    """Replace the page; without published programs, the section of an earlier run is kept."""
    _, heading, section = (PAGE.read_text() if PAGE.exists() else "").partition(PUBLISHED)
    page = "\n".join(_page(results, recipes, adapter)) + "\n"
    if published:
        heading, section = PUBLISHED, "\n".join(["", *_published(published, adapter), ""])
    PAGE.write_text(f"{page}\n{heading}{section}" if heading else page)


def _page(results: Mapping[str, StockResult], recipes: Mapping[str, Recipe], adapter: str) -> Iterator[str]:
    known = list(results.values())
    exported = [result for result in known if result.outcome not in ("not exported", "no model")]
    yield "# Zoo\n"
    yield INTRODUCTION
    yield f"{_today()} · {', '.join(versions('torch', 'executorch', 'torchao'))} · {adapter}\n"
    stateful = sum(recipes[result.name].is_stateful for result in exported)
    whole = sum(result.is_whole for result in exported)
    used = {name for result in exported for name in result.operators}
    yield (
        f"{len(known)} recipes, {stateful} with state: {outcomes(known)}. {whole} are one delegate, all on "
        f"the GPU. They use {len(used)} different operators."
    )
    yield from mixed(known)
    if len(known) < len(recipes):
        yield f"{len(recipes) - len(known)} further recipes of the table have not run."
    yield ""
    yield LEGEND.format(ratio=RATIO_MAX, least=ERROR_MIN, half=ERROR_MIN * HALF)
    groups: dict[str, list[StockResult]] = defaultdict(list)
    for result in exported:
        groups[recipes[result.name].kind].append(result)
    for kind, members in groups.items():
        yield from _table(kind, members, recipes)
    failed = [result for result in known if result.outcome == "not exported"]
    if failed:
        yield "## Not exported by ExecuTorch\n"
        yield "The error is ExecuTorch's or PyTorch's own. `pteron.compile` got the same module and inputs.\n"
        yield "| recipe | error | cause | `pteron.compile` |"
        yield "|---|---|---|---|"
        for result in failed:
            cause = recipes[result.name].fault or "**unknown**"
            yield f"| `{result.name}` | {plain(result.reason)} | {cause} | {plain(result.compiled)} |"


def _table(kind: str, members: Sequence[StockResult], recipes: Mapping[str, Recipe]) -> Iterator[str]:
    yield f"## {kind.capitalize()}\n"
    yield "| recipe | export | operators | on the GPU | error | eager | launches | ms | |"
    yield "|---|---|--:|--:|--:|--:|--:|--:|---|"
    for result in members:
        share = result.gpu / max(1, result.gpu + result.host)
        delegates = f" in {result.delegates}" if result.delegates != 1 else ""
        cells = [
            _export(recipes[result.name]),
            f"{result.gpu + result.host} ({len(result.operators)})",
            f"{share:.0%}{delegates}",
            error_text(result.error),
            error_text(result.eager),
            str(result.launches),
            f"{result.call_ms:.1f}",
        ]
        yield f"| `{result.name}` | {' | '.join(cells)} | {_note(result)} |"
    yield ""


def _export(recipe: Recipe) -> str:
    words = {"f16": recipe.is_half, "dynamic": recipe.shapes is not None, "state": recipe.is_stateful}
    return ", ".join([recipe.partitioner, *(word for word, holds in words.items() if holds)])


def _note(result: StockResult) -> str:
    bad = "" if result.outcome == "right" else f"**{result.outcome}** {plain(result.reason)}".strip()
    hosted = ", ".join(f"{count} `{name}`" for count, name, _ in result.left)
    return "; ".join(filter(None, [bad, f"host: {hosted}" if hosted else ""]))


def _published(results: Sequence[PublishedResult], adapter: str) -> Iterator[str]:
    yield PROGRAMS
    yield f"{_today()} · {adapter} · {outcomes(results)}\n"
    yield "| program | methods | operators | on the GPU | checked | worst of tolerance | launches | ms | |"
    yield "|---|---|--:|--:|--:|--:|--:|--:|---|"
    for result in results:
        bad = "" if result.outcome == "right" else f"**{result.outcome}**: {plain(result.reason)}"
        cells = [
            f"`{result.name}`",
            ", ".join(f"`{name}`" for name in result.methods),
            str(result.gpu + result.host),
            f"{result.gpu / max(1, result.gpu + result.host):.0%}",
            str(result.checked),
            f"{result.worst:.0%}",
            str(result.launches),
            f"{result.call_ms:.1f}",
            bad,
        ]
        yield f"| {' | '.join(cells)} |"
    if uses := hosted(results):
        yield f"\nOn the host: {', '.join(f'{count} `{name}`' for name, count in uses.most_common())}."


def _today() -> datetime.date:
    return datetime.datetime.now(tz=datetime.UTC).date()
