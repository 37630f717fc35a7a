"""Run programs that ExecuTorch's own partitioners write, and write docs/zoo.md.

Each runs in a process of its own. Results are kept, one JSON line each; the same command continues where it
was stopped.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter

from zoo.result import StockResult
from zoo.runner import Runner, add_options
from zoo.stock.published import PublishedResult, find_programs, measure_published
from zoo.stock.report import PAGE, write_page
from zoo.stock.table import RECIPES, measure_named


def main() -> int:
    options = _options()
    recipes = Runner(measure_named, StockResult, "zoo.preload", options)
    published = Runner(measure_published, PublishedResult, "zoo.preload", options, "published.jsonl")
    if options.published:
        names = list(find_programs(options.names))
        published.run(names)
        found = [published.read_results()[name] for name in names]
    else:
        recipes.run(options.names or list(RECIPES))
        found = []
    results = recipes.read_results()
    known = {name: results[name] for name in RECIPES if name in results}
    if options.report or not options.names:
        write_page(known, RECIPES, _adapter(), found)
        print(f"wrote {PAGE}")
    counts = Counter(result.outcome for result in found or known.values())
    print(", ".join(f"{count} {outcome}" for outcome, count in counts.most_common()))
    return 0 if set(counts) <= {"right", "not exported"} else 1


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="scripts/zoo", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help="recipes, or what --published takes; all")
    parser.add_argument(
        "--published",
        action="store_true",
        help="not recipes but programs of a hub, by owner, owner/name or owner/name:file.pte, or of a folder",
    )
    add_options(parser, "zoo")
    options = parser.parse_args()
    unknown = [] if options.published else [name for name in options.names if name not in RECIPES]
    if unknown:
        parser.error(f"no recipe is called {', '.join(unknown)}; known are {', '.join(RECIPES)}")
    return options


def _adapter() -> str:
    """The adapter that programs use here."""
    from pteron.tools.local_adapter import find_adapter

    return str(find_adapter().adapter)


if __name__ == "__main__":
    sys.exit(main())
