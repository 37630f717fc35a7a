"""A small case of each operator, exported once and kept with the tests: representative.zip.

    PYTHONPATH=src:tests python -m conformance.representative

chooses them anew among what is recorded.
"""

from __future__ import annotations

import shutil
import zipfile
from collections.abc import Iterator
from pathlib import Path

from conformance.cache import records_of
from conformance.record import is_recorded, read_cases
from conformance.suites import SUITES

ARCHIVE = Path(__file__).with_name("representative.zip")
BYTES_MAX = 40_000  # of one recipe
_DATE = (1980, 1, 1, 0, 0, 0)  # the archive of equal files is equal


def choose() -> Iterator[Path]:
    """For each operator of the WebGPU suite its smallest case, one with live dims where there is one."""
    recipes = SUITES["webgpu"].recipes()
    for operator in dict.fromkeys(recipe.partition("/")[0] for recipe in recipes):
        own = [recipe for recipe in recipes if recipe.startswith(f"{operator}/")]
        for suite in ("live", "webgpu"):
            folders = [folder for recipe in own if _is_runnable(folder := records_of(suite, recipe))]
            smallest = min(folders, key=_bytes, default=None)
            if smallest is not None and _bytes(smallest) <= BYTES_MAX:
                yield smallest
                break


def write_archive() -> None:
    """Put the chosen recipes' folders into the archive, by suite and name."""
    with zipfile.ZipFile(ARCHIVE, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as archive:
        for folder in choose():
            for file in sorted(folder.iterdir()):
                name = f"{folder.parent.name}/{folder.name}/{file.name}"
                archive.writestr(zipfile.ZipInfo(name, _DATE), file.read_bytes(), zipfile.ZIP_DEFLATED)


def names() -> list[str]:
    """The recipes in the archive, as "suite/name"."""
    with zipfile.ZipFile(ARCHIVE) as archive:
        return list(dict.fromkeys(name.rpartition("/")[0] for name in archive.namelist()))


def unpack(name: str, folder: Path) -> Path:
    """One recipe's recorded cases, in a folder as `read_cases` takes it."""
    with zipfile.ZipFile(ARCHIVE) as archive:
        for member in archive.namelist():
            if member.startswith(f"{name}/"):
                with archive.open(member) as source, (folder / Path(member).name).open("wb") as target:
                    shutil.copyfileobj(source, target)
    return folder


def _is_runnable(folder: Path) -> bool:
    return is_recorded(folder) and all(case.outcome is None for case in read_cases(folder))


def _bytes(folder: Path) -> int:
    return sum(file.stat().st_size for file in folder.iterdir())


if __name__ == "__main__":
    write_archive()
