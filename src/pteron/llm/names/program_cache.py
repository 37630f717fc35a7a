"""Programs built from checkpoints and GGUF files, once each, in the cache.

    program = build(located, print)

The cache has a folder for each source and its options: programs/NAME-KEY. Its file source.json says what the
program was built from. The key is a hash of the source's files (path, size and time of change), of the
options and of this builder's version, so a changed file is built again.
"""

from __future__ import annotations

import hashlib
import json
import re
import shutil
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from pteron.folders import cache_folder, new_folder, writing_to
from pteron.names.kinds import Located
from pteron.names.model_files import MANIFEST, ModelFolder

SOURCE = "source.json"
_READ = (".json", ".safetensors", ".model", ".jinja", ".tiktoken", ".txt")  # of a checkpoint's folder
_LABEL_MAX = 80
_KEY_DIGITS = 12
_VERSION = 9  # part of the key: a new one lets all programs be built again


@dataclass(frozen=True, slots=True)
class Built:
    """A program in the cache and what it was built from."""

    folder: Path
    name: str
    source: Path
    recipe: tuple[object, ...]  # source, options and builder: equal for the versions of a changed source


def build(
    located: Located,
    progress: Callable[[str], None] = lambda line: None,
    *,
    quantize: str | None = "auto",
    context: int | None = None,
    files: Mapping[str, bytes] | None = None,
) -> Located:
    """A model's program; the first call builds it, as `pteron export llm` does. `context` is for tokens
    beyond those of a LongRoPE model's usual program. `files` are added to the folder, by name."""
    folder = built_folder(located, files, quantize=quantize, context=context)
    built = Located("program", folder, located.name)
    with writing_to(folder):
        if (folder / MANIFEST).exists():
            return built
        from pteron.llm.export import export_llm  # here: a program that is built starts faster

        with new_folder(folder, MANIFEST) as made:
            export_llm(
                located.path,
                made,
                quantize=quantize,
                quantize_floats="8w",  # 4 bits cost small models too much quality: docs/export.md
                max_context_len=context,
                name=located.name,
                progress=progress,
            )
            source = {
                "name": located.name,
                "source": str(located.path.resolve()),
                "options": {"quantize": quantize, "context": context},
            }
            content = json.dumps({**source, "version": _VERSION}, indent=2) + "\n"
            for name, data in {**(files or {}), SOURCE: content.encode()}.items():
                (made / name).write_bytes(data)
    _remove_outdated(folder)
    return built


def _remove_outdated(folder: Path) -> None:
    """Remove programs that were built from the same source before it changed."""
    programs = {built.folder: built.recipe for built in built_programs()}
    for other, recipe in programs.items():
        if other != folder and recipe == programs.get(folder):
            (other / MANIFEST).unlink(
                missing_ok=True
            )  # first: what remains if a file is in use is no program
            shutil.rmtree(other, ignore_errors=True)


def built_folder(
    located: Located,
    files: Mapping[str, bytes] | None = None,
    *,
    quantize: str | None = "auto",
    context: int | None = None,
) -> Path:
    """Where the program of a model is, once it is built."""
    identity = [
        (file.name, str(file.resolve()), file.stat().st_size, file.stat().st_mtime_ns)
        for file in _source_files(located.path)
    ]
    added = {name: hashlib.sha256(data).hexdigest() for name, data in (files or {}).items()}
    options = {"quantize": quantize, "context": context}
    key = json.dumps([_VERSION, identity, added, options], sort_keys=True)
    digits = hashlib.sha256(key.encode()).hexdigest()[:_KEY_DIGITS]
    name = located.path.stem if located.path.is_file() else located.name  # a file may have several names
    label = re.sub(r"[^\w.-]+", "-", name)[:_LABEL_MAX]
    return programs_folder() / f"{label}-{digits}"


def built_programs() -> Iterator[Built]:
    """All programs in the cache."""
    for file in sorted(programs_folder().glob(f"*/{SOURCE}")):
        try:
            found = json.loads(file.read_text("utf-8"))
            recipe = (found["source"], found["options"], found.get("version"))
            yield Built(file.parent, str(found["name"]), Path(found["source"]), recipe)
        except (OSError, ValueError, LookupError, TypeError):  # damaged, or removed meanwhile
            continue


def longest_contexts(folder: ModelFolder) -> tuple[int, int]:
    """The longest context of a program in the cache, and of another one that can be built from its source;
    0 for other programs, whose source is unknown."""
    manifest = folder.manifest if (folder.path / SOURCE).exists() else {}
    longest, rebuilt = (manifest.get(f"longest_{kind}context_len") or 0 for kind in ("", "rebuilt_"))
    return int(longest), int(rebuilt)


def programs_folder() -> Path:
    return cache_folder() / "programs"


def _source_files(path: Path) -> list[Path]:
    if path.is_file():
        return [path]
    return sorted(file for file in path.iterdir() if file.suffix in _READ and file.exists())
