"""The models on this machine: built-in ones, downloads of a hub, and programs built from them or from files.

Out: what `pteron list` prints, and the bytes that `pteron rm` freed.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from pteron.errors import InputError, PteronError
from pteron.folders import path_of, writing_to
from pteron.llm.names.models import BUNDLED, SOURCES, checkpoint_file, names
from pteron.llm.names.program_cache import built_programs
from pteron.names.cache import (
    HubModel,
    cached_models,
    find_cached,
    partial_downloads,
    remove_cached,
    repository_folder,
    snapshot_folder,
)
from pteron.names.kinds import recognise


@dataclass(frozen=True, slots=True)
class LocalModel:
    """A model with its source (a download, or a file that the user has) and the programs built from it."""

    name: str
    kind: str
    source: Path
    programs: tuple[Path, ...]
    hub: HubModel | None = None

    @property
    def source_bytes(self) -> int:
        """The size of the source, without GGUF files beside it, which are models of their own."""
        if self.source.is_file():
            return self.source.stat().st_size
        return _bytes_in(file for file in self.source.rglob("*") if file.suffix != ".gguf" or not self.hub)

    @property
    def program_bytes(self) -> int:
        return _bytes_in(file for folder in self.programs for file in folder.rglob("*"))


def local_models() -> list[LocalModel]:
    of_hub = list(_of_hub()) if find_spec("huggingface_hub") else []
    downloads = [*(model.source for model in of_hub), *map(checkpoint_file, SOURCES.values())]
    return [*_built_in(), *of_hub, *_of_files({path.resolve() for path in downloads})]


def remove_model(name: str) -> int:
    """Delete from the caches what belongs to a name: its download and the programs built from it. Files
    elsewhere stay. Returns the bytes freed."""
    models = find_removable(name)
    sources = [model.source.resolve() for model in models]  # contents: revisions may share them
    wanted, of_hub = HubModel.parse(name), any(model.hub for model in models)
    freed = 0
    if wanted is not None and of_hub:
        with writing_to(repository_folder(wanted.repository)):
            freed = remove_cached(wanted)
    for model, source in zip(models, sources, strict=True):
        if model.hub and source.exists():
            continue  # another revision has it too, and its program
        is_ours = model.name in SOURCES
        freed += model.program_bytes + (model.source_bytes if is_ours else 0)
        for folder in (*model.programs, *((model.source,) if is_ours else ())):
            with writing_to(folder):
                shutil.rmtree(folder, ignore_errors=not folder.exists())
    return freed


def find_removable(name: str) -> list[LocalModel]:
    """What the caches have of a name; an error if there is nothing."""
    models = [model for model in local_models() if _is_called(model, name)]
    if name in BUNDLED and models:
        raise InputError(f"{name} is a part of the package and cannot be removed")
    if not any(
        model.hub or model.programs or (model.name in SOURCES and model.source_bytes) for model in models
    ):
        raise InputError(f"nothing in the cache belongs to {name}; `pteron list` prints all models")
    return models


def _is_called(model: LocalModel, name: str) -> bool:
    path = path_of(name)
    if path.exists():
        return model.hub is None and model.source == path.resolve()
    wanted = HubModel.parse(name)
    if model.hub is None or wanted is None:
        return model.name == name
    if wanted.repository != model.hub.repository:
        return False
    if wanted.tag is not None:
        return find_cached(wanted) == model.source
    return wanted.revision is None or snapshot_folder(wanted) == snapshot_folder(model.hub) is not None


def _built_in() -> Iterator[LocalModel]:
    for name in names():
        if name in BUNDLED:
            yield LocalModel(name, "built-in", BUNDLED[name], ())
        else:
            checkpoint = checkpoint_file(SOURCES[name])
            yield LocalModel(name, "built-in", checkpoint.parent, _built_from(checkpoint))


def _of_hub() -> Iterator[LocalModel]:
    for model in cached_models():
        path = find_cached(model)
        if path is not None:
            yield LocalModel(str(model), _kind(path), path, _built_from(path), model)
    for model, file in partial_downloads():
        yield LocalModel(str(model), "incomplete", file, (), model)


def _of_files(downloads: set[Path]) -> Iterator[LocalModel]:
    """Files of the user that programs were built from."""
    sources = dict.fromkeys(built.source for built in built_programs())
    for source in sources:
        if source not in downloads:
            kind = _kind(source) if source.exists() else "source is gone"
            yield LocalModel(str(source), kind, source, _built_from(source))


def _built_from(path: Path) -> tuple[Path, ...]:
    return tuple(built.folder for built in built_programs() if built.source == path.resolve())


def _kind(path: Path) -> str:
    try:
        kind = recognise(path).kind
    except PteronError:  # its files have changed since
        return "unusable"
    return "GGUF" if kind == "gguf" else kind


def _bytes_in(files: Iterable[Path]) -> int:
    return sum(file.stat().st_size for file in files if file.is_file())
