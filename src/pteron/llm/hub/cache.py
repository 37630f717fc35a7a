"""A name of a hub's model -> its files in the cache of `huggingface_hub`, which other tools share.

The layout is the library's: models--OWNER--NAME has `refs` (revision -> commit), `snapshots` (a folder of
links for each commit) and `blobs` (the contents). HF_HOME and HF_HUB_CACHE move it.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from pteron.errors import InputError, UnsupportedError
from pteron.extras import need
from pteron.llm.hub.files import select_files
from pteron.llm.model_kinds import recognise

_NAME = re.compile(
    r"(?!.*\.\.)(?:(?:https?://)?(?:hf\.co|huggingface\.co)/)?"
    r"(?P<repository>\w[\w.-]*/\w[\w.-]*)(?:@(?P<revision>[\w./-]+))?(?::(?P<tag>[\w./-]+))?",
    re.ASCII,
)
_FILE = re.compile(
    r"\.(pte|bpte|ptd|ptn|gguf|bin|json|safetensors|pt|pt2|pth|onnx|zip|tar|gz|h5|tflite|png|jpe?g|txt|md|py)$",
    re.IGNORECASE,
)
_MAIN = "main"  # the default revision
PARTIAL = ".pteron-partial"  # suffix of a blob that is not complete


@dataclass(frozen=True, slots=True)
class HubModel:
    repository: str  # owner/name
    revision: str = _MAIN
    tag: str | None = None  # of one file

    @classmethod
    def parse(cls, name: str) -> HubModel | None:
        """The model that a name means; None if the name cannot be one of a hub."""
        found = _NAME.fullmatch(name)
        if found is None or _FILE.search(found["repository"]):
            return None
        return cls(found["repository"], found["revision"] or _MAIN, found["tag"])

    def __str__(self) -> str:
        revision = "" if self.revision == _MAIN else f"@{self.revision}"
        return f"{self.repository}{revision}{f':{self.tag}' if self.tag else ''}"


def find_cached(model: HubModel) -> Path | None:
    """A model's folder or GGUF file, if the cache has all of it."""
    folder = snapshot_folder(model)
    if folder is None:
        return None
    files = [file.relative_to(folder).as_posix() for file in folder.rglob("*") if file.is_file()]
    try:
        selection = select_files(files, model.tag, str(model))
        return folder / selection.main if selection.main else recognise(folder).path
    except (InputError, UnsupportedError):
        return None


def snapshot_folder(model: HubModel) -> Path | None:
    """The folder of a model's revision in the cache."""
    repository = repository_folder(model.repository)
    reference = repository / "refs" / model.revision
    commit = reference.read_text("utf-8").strip() if reference.is_file() else model.revision
    folder = repository / "snapshots" / commit
    return folder if folder.is_dir() else None


def repository_folder(repository: str) -> Path:
    return cache_of_hub() / f"models--{repository.replace('/', '--')}"


def cache_of_hub() -> Path:
    constants = need("huggingface_hub.constants", "models of a hub", "hub")
    return Path(constants.HF_HUB_CACHE)


def cached_models() -> Iterator[HubModel]:
    """The models in the cache that can be used here; each GGUF file is a model."""
    for repository in sorted(cache_of_hub().glob("models--*--*")):
        name, references = _repository_of(repository), repository / "refs"
        for revision in sorted(references.rglob("*")):
            if revision.is_file():
                yield from _models_of(HubModel(name, revision.relative_to(references).as_posix()))


def _repository_of(folder: Path) -> str:
    return folder.name.removeprefix("models--").replace("--", "/", 1)


def _models_of(revision: HubModel) -> Iterator[HubModel]:
    folder, cached = snapshot_folder(revision), find_cached(revision)
    if folder is None:
        return
    if cached is not None and cached.suffix != ".gguf":
        yield revision
    for path in sorted(folder.rglob("*.gguf")):
        if path.is_file():
            yield replace(revision, tag=path.relative_to(folder).as_posix())


def partial_downloads() -> Iterator[tuple[HubModel, Path]]:
    """The repositories with an interrupted download, and its file."""
    for file in sorted(cache_of_hub().glob(f"models--*--*/blobs/*{PARTIAL}")):
        yield HubModel(_repository_of(file.parents[1])), file


def remove_cached(model: HubModel) -> None:
    """Delete a model: one GGUF file, or without a tag all revisions of the repository."""
    repository = repository_folder(model.repository)
    path = find_cached(model)
    if model.tag is not None and path is not None:
        content = path.resolve()
        links = [link for link in (repository / "snapshots").rglob("*") if not link.is_dir()]
        removed = [link for link in links if link.resolve() == content]
        for file in (*removed, content):
            file.unlink(missing_ok=True)
        if len(removed) < len(links):
            return
    shutil.rmtree(repository, ignore_errors=not repository.exists())
