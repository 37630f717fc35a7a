"""A name of a hub's model -> its files in the cache of `huggingface_hub`, which other tools share.

The layout is the library's: models--OWNER--NAME has `refs` (revision -> commit), `snapshots` (a folder of
links for each commit) and `blobs` (the contents). HF_HOME and HF_HUB_CACHE move it. Pteron adds `pteron`: the
names of all files that a commit has at the hub. A name means the same model whichever of them are cached.
"""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from pteron.errors import PteronError
from pteron.extras import need
from pteron.folders import replace_file
from pteron.names.kinds import recognise
from pteron.names.model_files import MANIFEST, ModelFolder
from pteron.names.selection import select_files, weights_beside

_NAME = re.compile(
    r"(?!.*\.\.)(?:hf://|(?:https?://)?(?:hf\.co|huggingface\.co)/)?"
    r"(?P<repository>\w[\w.-]*/\w[\w.-]*)(?:@(?P<revision>[\w./-]+))?(?::(?P<tag>[\w./-]+))?",
    re.ASCII,
)
FILE_NAME = re.compile(
    r"\.(pte|bpte|ptd|ptn|gguf|bin|json|safetensors|pt|pt2|pth|onnx|zip|tar|gz|h5|tflite|png|jpe?g|txt|md|py)$",
    re.IGNORECASE,
)
COMMIT = re.compile(r"\w[\w.-]*", re.ASCII)
_MAIN = "main"  # the default revision
PARTIAL = ".pteron-partial"  # suffix of a blob that is not complete


@dataclass(frozen=True, slots=True)
class HubModel:
    repository: str  # owner/name
    revision: str | None = None  # a branch, a tag or a commit; None: not named, so the default branch
    tag: str | None = None  # of one file

    @classmethod
    def parse(cls, name: str) -> HubModel | None:
        """The model that a name means; None if the name cannot be one of a hub."""
        found = _NAME.fullmatch(name)
        if found is None or FILE_NAME.search(found["repository"]):
            return None
        return cls(found["repository"], found["revision"], found["tag"])

    def __str__(self) -> str:
        revision = f"@{self.revision}" if self.revision else ""
        return f"{self.repository}{revision}{f':{self.tag}' if self.tag else ''}"


def hub_model(given: object) -> HubModel | None:
    """The model of a hub that a caller's name means; None for paths, and for what cannot be one."""
    return HubModel.parse(given) if isinstance(given, str) and not os.path.exists(given) else None


def find_cached(model: HubModel, *, programs_only: bool = False) -> Path | None:
    """A model's folder or file, if the cache has all of it."""
    folder = snapshot_folder(model)
    if folder is None:
        return None
    try:
        files = _listed(folder)
        if files is None:
            return _find_unlisted(folder, model.tag)
        selection = select_files(files, model.tag, str(model), programs_only=programs_only)
        if not all((folder / file).is_file() for file in selection.files):
            return None
        return folder / selection.main if selection.main else recognise(folder).path
    except (PteronError, ValueError, OSError):  # a damaged list, names that no file can have
        return None


def _find_unlisted(folder: Path, tag: str | None) -> Path | None:
    """A model that another tool has downloaded. Only a file's full name and a complete folder are certain to
    mean the same as at the hub. A program may need files beside it, which only the hub knows."""
    if tag is not None:
        is_whole = tag.lower().endswith((".gguf", ".ptd")) or _hub().HF_HUB_OFFLINE
        return folder / tag if is_whole and (folder / tag).is_file() else None
    _ = ModelFolder(folder).tokenizer  # an error if there is none
    return folder if recognise(folder).path == folder else None


def cached_weights(model: HubModel, program: Path) -> tuple[Path, ...]:
    """The weight file that the hub has beside a program in the cache."""
    folder = snapshot_folder(model)
    files = None if folder is None else _listed(folder)
    if folder is None or files is None:
        return ()
    main = (program / MANIFEST if program.is_dir() else program).relative_to(folder).as_posix()
    return tuple(folder / name for name in weights_beside(files, main))


def write_listing(model: HubModel, commit: str, files: Sequence[str]) -> None:
    """Keep the names of all files of a commit at the hub."""
    replace_file(
        _listing_file(repository_folder(model.repository) / "snapshots" / commit), json.dumps(files).encode()
    )


def _listed(snapshot: Path) -> list[str] | None:
    """The names of all files of a commit at the hub, if they are known."""
    file = _listing_file(snapshot)
    return [*map(str, json.loads(file.read_text("utf-8")))] if file.is_file() else None


def _listing_file(snapshot: Path) -> Path:
    return snapshot.parents[1] / "pteron" / f"{snapshot.name}.json"


def snapshot_folder(model: HubModel) -> Path | None:
    """The folder of a model's revision in the cache."""
    repository, revision = repository_folder(model.repository), model.revision or _MAIN
    reference = repository / "refs" / revision
    commit = reference.read_text("utf-8").strip() if reference.is_file() else revision
    folder = repository / "snapshots" / commit
    return folder if COMMIT.fullmatch(commit) and folder.is_dir() else None


def repository_folder(repository: str) -> Path:
    return cache_of_hub() / f"models--{repository.replace('/', '--')}"


def cache_of_hub() -> Path:
    return Path(_hub().HF_HUB_CACHE)


def _hub() -> Any:
    return need("huggingface_hub.constants", "models of a hub", "hub")


def cached_models() -> Iterator[HubModel]:
    """The models in the cache that can be used here; each GGUF file is a model, and each program that is not
    its repository's only one."""
    for repository in sorted(cache_of_hub().glob("models--*--*")):
        name, references = _repository_of(repository), _references(repository)
        unnamed = {folder.name for folder in (repository / "snapshots").glob("*")} - set(references.values())
        for revision in (*references, *sorted(unnamed)):
            yield from _models_of(HubModel(name, None if revision == _MAIN else revision))


def _references(repository: Path) -> dict[str, str]:
    """The commit of each branch and tag."""
    folder = repository / "refs"
    files = sorted(file for file in folder.rglob("*") if file.is_file())
    return {file.relative_to(folder).as_posix(): file.read_text("utf-8").strip() for file in files}


def _repository_of(folder: Path) -> str:
    return folder.name.removeprefix("models--").replace("--", "/", 1)


def _models_of(revision: HubModel) -> Iterator[HubModel]:
    folder, cached = snapshot_folder(revision), find_cached(revision)
    if folder is None:
        return
    if cached is not None and cached.suffix != ".gguf":
        yield revision
    own = {cached, *(cached.glob("*.pte") if cached is not None and cached.is_dir() else ())}
    for path in sorted([*folder.rglob("*.gguf"), *folder.rglob("*.pte")]):
        if path.is_file() and (path.suffix == ".gguf" or path not in own):
            yield replace(revision, tag=path.relative_to(folder).as_posix())


def partial_downloads() -> Iterator[tuple[HubModel, Path]]:
    """The repositories with an interrupted download, and its file."""
    for file in sorted(cache_of_hub().glob(f"models--*--*/blobs/*{PARTIAL}")):
        yield HubModel(_repository_of(file.parents[1])), file


def remove_cached(model: HubModel) -> int:
    """Delete one file of a model, one revision of it, or all of them if neither is named. Files that another
    revision has too stay in the cache. Returns the bytes freed."""
    repository = repository_folder(model.repository)
    stored = repository.resolve()  # a link may lead to it
    before = _stored_bytes(stored)
    if model.tag is not None:
        _remove_file(repository, model)
    elif model.revision is not None:
        _remove_revision(repository, model)
    if (model.tag is None and model.revision is None) or not _links(repository / "snapshots"):
        _remove_folder(repository)
    return before - _stored_bytes(stored)


def _remove_file(repository: Path, model: HubModel) -> None:
    path = find_cached(model)
    if path is None:
        return
    content = path.resolve()
    everywhere = [link for link in _links(repository / "snapshots") if link.resolve() == content]
    _remove_links(repository, everywhere if model.revision is None else [path])


def _remove_revision(repository: Path, model: HubModel) -> None:
    """A commit stays while another branch or tag has it."""
    snapshot, references = snapshot_folder(model), _references(repository)
    if snapshot is None:
        return
    named = [name for name, commit in references.items() if commit == snapshot.name]
    removed = [model.revision] if model.revision in references else named
    for name in removed:
        (repository / "refs" / str(name)).unlink()
    if set(named) <= set(removed):
        _remove_links(repository, _links(snapshot))
        _remove_folder(snapshot)
        _listing_file(snapshot).unlink(missing_ok=True)


def _remove_folder(folder: Path) -> None:
    """Delete a folder, if it is there, or the link in its place: what that leads to stays."""
    if folder.is_symlink():
        folder.unlink()
    elif folder.exists():
        shutil.rmtree(folder)


def _remove_links(repository: Path, links: Sequence[Path]) -> None:
    """Delete files of snapshots, and their contents unless other files have the same. What a link has
    outside the repository stays."""
    home, blobs = repository.resolve(), (repository / "blobs").resolve()
    contents = {link.resolve() for link in links}
    for link in links:
        if link.parent.resolve().is_relative_to(home):
            link.unlink()
    for content in contents - {link.resolve() for link in _links(repository / "snapshots")}:
        if content.is_relative_to(blobs):
            content.unlink(missing_ok=True)


def _links(folder: Path) -> list[Path]:
    return [link for link in folder.rglob("*") if not link.is_dir()]


def _stored_bytes(repository: Path) -> int:
    """The bytes of all contents. Where links are not possible, they are in the snapshots."""
    files = (file for part in ("blobs", "snapshots") for file in _links(repository / part))
    return sum(file.stat().st_size for file in files if not file.is_symlink())
