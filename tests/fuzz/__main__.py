"""The command: scripts/fuzz --help."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from fuzz import ROOT
from fuzz.process import fuzz, missing, replay
from fuzz.targets import TARGETS


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="scripts/fuzz", description="Fuzz everything that reads untrusted files."
    )
    parser.add_argument("minutes", nargs="?", type=float, default=10.0, help="in total, for all targets (10)")
    parser.add_argument("--targets", help="comma-separated names (default: all that can run)")
    parser.add_argument("--seed", type=int, default=0, help="of all random choices (0)")
    parser.add_argument("--replay", type=Path, metavar="FILE", help="run one input and print the outcome")
    parser.add_argument("--list", action="store_true", help="list the targets")
    arguments = parser.parse_args()
    if arguments.list:
        print(*TARGETS, sep="\n")
        return 0
    if arguments.replay:
        key, text = replay([arguments.replay])[arguments.replay]
        print(key, text, sep="\n\n")
        return 1 if text else 0
    names = arguments.targets.split(",") if arguments.targets else list(TARGETS)
    if unknown := [name for name in names if name not in TARGETS]:
        parser.error(f"no target {', '.join(unknown)}; known: {', '.join(TARGETS)}")
    chosen = [TARGETS[name] for name in names]
    shares = sum(target.share for target in chosen)
    findings = 0
    for target in chosen:
        if reason := missing(target):
            print(f"{target.name:16} skipped: {reason}")
            continue
        seconds = 60 * arguments.minutes * target.share / shares
        report = fuzz(target, ROOT / ".cache" / "fuzz", arguments.seed, seconds)
        outcomes = ", ".join(f"{count:,} {word}" for word, count in report.outcomes.most_common(6))
        print(f"{target.name:16} {report.executions:9,} executions  [{outcomes}]", flush=True)
        for key, file in report.findings.items():
            print(f"    {key}\n    {file}", flush=True)
        findings += len(report.findings)
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main())
