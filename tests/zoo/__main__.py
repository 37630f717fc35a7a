"""Compile architectures of torchvision, timm, transformers and others, and write docs/models.md.

Each runs in a process of its own. Results are kept, one JSON line each; the same command continues where it
was stopped.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import re
import signal
import sys
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from multiprocessing.context import ForkServerContext
from pathlib import Path

from conformance.cache import sources_now

from zoo.report import PAGE, write_page
from zoo.result import Result
from zoo.worker import work

ROOT = Path(__file__).parents[2]
WALL_PER_CPU = 10  # a shared machine may be slow


def main() -> int:
    options = _options()
    if options.llm:
        from zoo import llm

        return llm.main(options)
    from zoo.table import MODELS  # imports PyTorch

    options.folder.mkdir(parents=True, exist_ok=True)
    file = options.folder / "results.jsonl"
    results = read_results(file)
    chosen = [name for name in MODELS if re.search(options.filter, name)]
    due = [name for name in chosen if _is_due(results.get(name), options.rerun)]
    print(f"{len(due)} architectures to run, {len(chosen) - len(due)} are done", flush=True)
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["zoo.preload"])  # imports take longer than most models

    sources = sources_now()

    def run(name: str) -> None:
        result = _run(name, options, context)
        result.sources = sources
        with file.open("a") as lines:
            lines.write(json.dumps(result.as_dict()) + "\n")
        print(_line(result), flush=True)

    with ThreadPoolExecutor(options.jobs) as pool:
        list(pool.map(run, due))
    results = {name: result for name, result in read_results(file).items() if name in MODELS}
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
    parser.add_argument("--jobs", type=int, default=2, metavar="N", help="processes at a time (default 2)")
    parser.add_argument("--limit", type=int, default=300, metavar="S", help="processor seconds of each (300)")
    parser.add_argument("--memory", type=float, default=8, metavar="GB", help="of each process (default 8)")
    parser.add_argument(
        "--rerun",
        choices=("none", "failed", "partial", "all"),
        default="none",
        help="run again: none that has a result (default), what is not right, what has operators on the host "
        "too, or all",
    )
    parser.add_argument("--folder", type=Path, default=ROOT / ".cache" / "models", help="of the results")
    parser.add_argument("--report", action="store_true", help="write the page after a part, too")
    return parser.parse_args()


def read_results(file: Path) -> dict[str, Result]:
    """The last result of each architecture."""
    lines = file.read_text().splitlines() if file.exists() else []
    return {record["name"]: Result(**record) for record in map(json.loads, lines)}


def _is_due(result: Result | None, rerun: str) -> bool:
    if result is None or rerun == "all":
        return True
    if rerun == "partial":
        return not result.is_whole
    return rerun == "failed" and result.outcome != "right"


def _run(name: str, options: argparse.Namespace, context: ForkServerContext) -> Result:
    """Measure in a process; a process that fails becomes a result."""
    ours, theirs = context.Pipe(duplex=False)
    log = options.folder / f"{name}.log"
    process = context.Process(target=work, args=(name, theirs, options.limit, options.memory, log))
    process.start()
    theirs.close()
    try:
        if ours.poll(options.limit * WALL_PER_CPU):
            return Result(**ours.recv())
    except EOFError:
        process.join()
        if process.exitcode not in (-signal.SIGXCPU, -signal.SIGKILL):
            return Result(name, "crashed", _last_line(log))
    finally:
        process.kill()
        process.join()
        ours.close()
    return Result(name, "timed out", f"not done after {options.limit} s", compile_s=options.limit)


def _last_line(log: Path) -> str:
    lines = log.read_text(errors="replace").strip().splitlines() if log.exists() else []
    return lines[-1] if lines else "the process ended without a message"


def _line(result: Result) -> str:
    where = f"{result.gpu} on the GPU in {result.delegates}, {result.host} on the host"
    errors = f"error {result.error or 0:.1e}, eager {result.eager or 0:.1e}"
    told = result.reason or f"{where}; {errors}"
    return f"{result.name}: {result.outcome}, {result.compile_s:.0f} s: {told}"


if __name__ == "__main__":
    sys.exit(main())
