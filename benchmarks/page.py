"""Writes benchmarks/README.md from benchmarks/results/*.json:  python benchmarks/page.py

A result is one table: its command, machine, date, the commit that recorded it, columns and rows. Whole
numbers get thousands separators, null is an empty cell, all else is printed as the file has it. To add a
table, add a file.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
PAGE = HERE / "README.md"
INTRO = """\
# Benchmarks

`benchmarks/page.py` writes this page from `benchmarks/results/*.json`. Each table is one run of its
command, on the machine and day that it names; notes below it say which figures are from other runs.
Machines are shared: compare within a table, not across tables. Absolute times are from GPUs; on the software
adapter only ratios mean something. What was tried and lost is in [docs/notes](../docs/notes/README.md).

## Before a release

    python benchmarks/release.py llama1b_q4.pte [--save FILE] [--keep]

runs `load.py`, `calls.py`, `llm.py` and `planning.py`, each in its own process (about a minute on an H200),
and compares with the figures of the same adapter in `benchmarks/baseline`. It fails if a figure is worse by
more than noise: by more than 5 % (20 % where the host decides) and by more than three times the spread of
either run. `--keep` makes the new figures the baseline. Every script's `--save FILE` adds its figures to a
file; `figures.py BEFORE.json AFTER.json` compares two files. `floors.py` knows the rates of some GPUs; rows
then show the floor and how much of it is reached.

## Further measurements

Their tables are in the pages that they belong to.

A mixture of experts beside the dense program with as many active weights
([experts](../docs/notes/experts.md)). The programs are made on the spot, in 5 to 20 seconds each. The last
lines are the ratios of times; the first program is measured again at the end, so its own ratio is the noise
of the run:

    python benchmarks/llama_program.py llama1b_q4.pte
    python benchmarks/llama_program.py experts1b_q4.pte --experts 64 --chosen 8
    python benchmarks/llm.py llama1b_q4.pte experts1b_q4.pte --prefill 128 512 --decode 100 430

Speculative decoding ([language models](../docs/language-models.md#speculative-decoding)): the time of a
verification by rows, and gains with synthetic proposals; then a code edit, a summary and a story. A model can
be a folder, a GGUF file or a program beside its tokenizer; none of them needs a network:

    python benchmarks/speculative.py --program llama1b_q4.pte --tokens 192
    python benchmarks/speculative.py --model smollm2

A loop over frames ([in a loop](../docs/python.md#in-a-loop)): upload, network and reading one after the
other, and overlapped, in one program and in two:

    python benchmarks/loop.py --size 1024 --channels 32 --layers 4"""


def page(folder: Path = HERE / "results") -> str:
    """The text of the page."""
    parts = [INTRO]
    for path in sorted(folder.glob("*.json")):
        parts.append("\n".join(section(json.loads(path.read_text("utf-8"), parse_float=str))))
    return "\n\n".join(parts) + "\n"


def section(result: dict[str, Any]) -> Iterator[str]:
    """One result as Markdown."""
    yield f"## {result['title']}"
    yield ""
    yield from (f"    {command}" for command in result["command"])
    yield ""
    yield f"{result['machine']}; {result['date']}, recorded in {result['commit']}."
    yield from ("", result["about"]) if result["about"] else ()
    yield ""
    yield row(result["columns"])
    yield row(["---"] + ["--:"] * (len(result["columns"]) - 1))
    yield from map(row, result["rows"])
    yield from ("", *(f"- {note}" for note in result["notes"])) if result["notes"] else ()


def row(cells: list[Any]) -> str:
    return "| " + " | ".join(map(cell, cells)) + " |"


def cell(value: Any) -> str:
    if value is None:
        return ""
    return f"{value:,}" if isinstance(value, int) else str(value)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.parse_args()
    PAGE.write_text(page(), "utf-8")


if __name__ == "__main__":
    main()
