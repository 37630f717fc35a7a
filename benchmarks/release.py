"""All measurements before a release, on this machine, compared with those of the last release.

    python benchmarks/release.py PROGRAM.pte [--save FILE] [--keep]

Runs load.py, calls.py, llm.py and planning.py, each in its own process, and compares their figures with this
machine's in benchmarks/baseline. Fails if a figure is worse by more than noise (figures.py). --keep makes the
new figures the baseline.
"""

from __future__ import annotations

import argparse
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import figures

HERE = Path(__file__).parent
BASELINES = HERE / "baseline"
# One table each. A part that differs much from run to run is measured more often.
TABLES = (
    ("load.py", "PROGRAM", "--cold", "--runs", "3"),
    ("calls.py", "--seconds", "0.25"),
    ("llm.py", "PROGRAM", "--prefill", "--decode", "100", "128", "256", "430", "512", "1024", "1750", "1900"),
    ("llm.py", "PROGRAM", "--decode", "--prefill", *map(str, (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024))),
    ("planning.py", "PROGRAM"),
)


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("program")
    parser.add_argument("--save", help="a new file for the figures")
    parser.add_argument("--keep", action="store_true", help="make them this machine's baseline")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        saved = Path(arguments.save or Path(folder) / "figures.json")
        if saved.exists():
            parser.error(f"{saved} is there already")
        measure(arguments.program, saved)
        baseline = baseline_of(figures.read(saved)[0])
        code = figures.main([str(baseline), str(saved)]) if baseline.exists() else 0
        if arguments.keep:
            BASELINES.mkdir(exist_ok=True)
            shutil.copyfile(saved, baseline)
        elif not baseline.exists():
            print(f"no earlier figures of this adapter to compare with; --keep makes these {baseline}")
    return code


def measure(program: str, saved: Path) -> None:
    """Run every table, and gather the figures in one file."""
    for script, *options in TABLES:
        given = [program if option == "PROGRAM" else option for option in options]
        print(f"--- {script} {' '.join(given)}", flush=True)
        subprocess.run([sys.executable, HERE / script, *given, "--save", saved], check=True)


def baseline_of(machine: str) -> Path:
    """The file of a machine's figures."""
    return BASELINES / f"{re.sub(r'[^a-z0-9]+', '-', machine.lower()).strip('-')}.json"


if __name__ == "__main__":
    sys.exit(main())
