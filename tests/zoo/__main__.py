"""Compile architectures of torchvision, timm, transformers and others, and write docs/models.md.

Each runs in a process of its own. Results are kept, one JSON line each; the same command continues where it
was stopped.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections import Counter

from zoo.report import PAGE, write_page
from zoo.result import Result
from zoo.runner import Runner, add_options


def main() -> int:
    options = _options()
    if options.llm:
        from zoo import llm

        return llm.main(options)
    from zoo.table import MODELS, measure_named  # imports PyTorch

    runner = Runner(measure_named, Result, "zoo.preload_packages", options)
    chosen = [name for name in MODELS if re.search(options.filter, name)]
    runner.run(chosen)
    results = {name: result for name, result in runner.read_results().items() if name in MODELS}
    if options.report or len(chosen) == len(MODELS):
        write_page({name: results[name] for name in MODELS if name in results}, MODELS)
        print(f"wrote {PAGE}")
    counts = Counter(result.outcome for result in results.values())
    print(", ".join(f"{count} {outcome}" for outcome, count in counts.most_common()))
    return 0 if set(counts) <= {"right"} else 1


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="scripts/models", description=__doc__)
    parser.add_argument("--llm", action="store_true", help="language models, built without PyTorch")
    parser.add_argument("--filter", default="", metavar="REGEX", help="architectures whose name matches")
    add_options(parser, "models")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
