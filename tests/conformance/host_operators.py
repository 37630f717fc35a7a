"""Operators that programs call outside their delegates, by the number of programs that do.

    PYTHONPATH=src:tests python -m conformance.host_operators FOLDER_OR_ZIP ...

Without arguments it reads the fixtures, the representative cases and what is recorded of the suites.
"""

from __future__ import annotations

import sys
import zipfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from conformance.cache import FOLDER, ROOT
from conformance.representative import ARCHIVE
from pteron import PteronError
from pteron.format.program import read_program
from pteron.format.records import KernelCall


def programs(place: Path) -> Iterator[bytes]:
    """The .pte files of a folder or a zip archive."""
    if place.suffix == ".zip":
        with zipfile.ZipFile(place) as archive:
            yield from (archive.read(name) for name in archive.namelist() if name.endswith(".pte"))
    yield from (path.read_bytes() for path in sorted(place.rglob("*.pte")))


def main() -> None:
    places = [Path(argument) for argument in sys.argv[1:]] or [ROOT / "tests" / "fixtures", ARCHIVE, FOLDER]
    counts: Counter[str] = Counter()
    total = 0
    for data in (data for place in places for data in programs(place)):
        try:
            methods = read_program(data).methods
        except PteronError:
            continue  # damaged on purpose
        total += 1
        counts.update(
            {
                method.operators[call.operator]
                for method in methods
                for call in method.instructions
                if isinstance(call, KernelCall)
            }
        )
    print(f"{total} programs")
    for name, count in counts.most_common():
        print(f"{count:5} {name}")


if __name__ == "__main__":
    main()
