"""The command: scripts/fuzz --help."""

from __future__ import annotations

import argparse
import importlib.util
import json
import sys
from pathlib import Path

from fuzz import ROOT
from fuzz.campaign import Campaign, Report
from fuzz.minimise import minimise
from fuzz.replay import replay, target_of
from fuzz.target import Target
from fuzz.targets import TARGETS

CACHE = ROOT / ".cache" / "fuzz"


def main() -> int:
    arguments = parse()
    if arguments.list:
        for target in TARGETS.values():
            print(f"{target.name:16} {missing(target) or ', '.join(target.watched)}")
        return 0
    if arguments.replay:
        return replay_file(arguments.replay, arguments.target)
    return fuzz(arguments)


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="scripts/fuzz", description="Fuzz everything that reads untrusted files."
    )
    parser.add_argument("minutes", nargs="?", type=float, default=10.0, help="in total, for all targets (10)")
    parser.add_argument("--targets", help="comma-separated names (default: all that can run)")
    parser.add_argument("--seed", type=int, default=0, help="of all random choices (0)")
    parser.add_argument("--executions", type=int, default=sys.maxsize, help="most executions per target")
    parser.add_argument("--cache", type=Path, default=CACHE, help="folder of the corpus (.cache/fuzz)")
    parser.add_argument("--replay", type=Path, metavar="FILE", help="run one input and print the outcome")
    parser.add_argument("--target", help="the target of --replay, if the file name does not begin with it")
    parser.add_argument("--list", action="store_true", help="list the targets")
    return parser.parse_args()


def fuzz(arguments: argparse.Namespace) -> int:
    """Run the targets one after the other; 1 if anything was found."""
    names = arguments.targets.split(",") if arguments.targets else list(TARGETS)
    unknown = [name for name in names if name not in TARGETS]
    if unknown:
        print(f"scripts/fuzz: no target {', '.join(unknown)}; known: {', '.join(TARGETS)}", file=sys.stderr)
        return 2
    chosen = [TARGETS[name] for name in names if not missing(TARGETS[name])]
    for name in names:
        if reason := missing(TARGETS[name]):
            print(f"{name:16} skipped: {reason}")
    shares = sum(target.share for target in chosen)
    reports = []
    for target in chosen:
        seconds = 60 * arguments.minutes * target.share / shares
        report = Campaign(target, arguments.cache, arguments.seed).run(seconds, arguments.executions)
        print(report, flush=True)
        reports.append(report)
        for key, file in report.findings.items():
            print(f"    {key}\n    {minimise(target, file, key)}", flush=True)
    return summary(reports, arguments.cache)


def summary(reports: list[Report], cache: Path) -> int:
    executions, seconds = sum(r.executions for r in reports), sum(r.seconds for r in reports)
    found = sum(len(report.findings) for report in reports)
    lines, of = sum(report.lines for report in reports), sum(report.of for report in reports)
    print(
        f"{executions:,} executions in {seconds / 60:.1f} minutes, "
        f"{executions / max(seconds, 1e-9):,.0f}/s, {lines:,} of {of:,} lines, {found} findings"
    )
    figures = [{**vars(report), "findings": list(report.findings)} for report in reports]
    (cache / "report.json").write_text(json.dumps(figures, indent=1))
    return 1 if found else 0


def replay_file(file: Path, name: str | None) -> int:
    target = TARGETS.get(name) if name else target_of(file)
    if target is None:
        print(f"scripts/fuzz: --target is needed, one of {', '.join(TARGETS)}", file=sys.stderr)
        return 2
    key, text = replay(target, file)
    print(key, text, sep="\n\n")
    return 1 if text else 0


def missing(target: Target) -> str | None:
    """Why a target cannot run on this machine."""
    absent = [package for package in target.needs if importlib.util.find_spec(package) is None]
    return f"{', '.join(absent)} is not installed" if absent else None


if __name__ == "__main__":
    sys.exit(main())
