"""A file or folder -> which kind of model it is: a program, a checkpoint (Hugging Face or llama2.c) or a GGUF
file. Anything else is an error that says what it is and what to do."""

from __future__ import annotations

import re
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Literal

from pteron.errors import FormatError, InputError, PteronError
from pteron.format.foreign import HEAD_BYTES, describe_foreign
from pteron.format.source import open_file
from pteron.names.model_files import INDEX, MANIFEST, ModelFolder, is_there, shard_names

Kind = Literal["program", "checkpoint", "gguf"]
CONFIG = "config.json"
ADAPTER_FILES = ("adapter_config.json", "adapter_model.safetensors")  # of a LoRA adapter
_TO_SAFETENSORS = (
    "convert them with transformers: AutoModelForCausalLM.from_pretrained(FOLDER).save_pretrained(NEW_FOLDER)"
)
USE_ADAPTER = "give the model that it was trained for, and the adapter with --lora (adapters= in Python)"
_PART = re.compile(r"(?:-(\d{5})-of-\d{5})?\.(?:gguf|pte)$", re.IGNORECASE)  # with the number of a part
_NAMED = 6  # files that a message names


@dataclass
class Located:
    """A model on this machine; what takes a path takes it too. `path` is a program (.pte) or its folder, a
    checkpoint or a GGUF file; `name` is its name in lists and in the API. `data` are its weight files (.ptd),
    where a hub has them with it."""

    kind: Kind
    path: Path
    name: str
    data: tuple[Path, ...] = ()

    def __str__(self) -> str:
        return self.name

    def __fspath__(self) -> str:
        return str(self.path)

    @cached_property
    def folder(self) -> ModelFolder:
        return ModelFolder.of(self.path)

    @property
    def program(self) -> Path:
        """The program, as one file."""
        require_program(self.kind, f"{self.name} ({self.path})")
        return self.folder.program if self.path.is_dir() else self.path


def require_program(kind: Kind, name: str) -> None:
    if kind != "program":
        what = "a GGUF file" if kind == "gguf" else "a checkpoint"
        raise InputError(f"{name} is {what}, not a program: pteron.llm.LLM makes a program of it")


def recognise(path: Path) -> Located:
    """The model at an existing path."""
    if path.is_dir():
        return _recognise_folder(path)
    with open_file(path) as file:
        head = file.read(HEAD_BYTES)
    if head.startswith(b"GGUF"):
        return Located("gguf", path, path.stem)
    foreign = describe_foreign(head, path.name)
    if foreign is not None:
        raise InputError(f"{path}: {foreign}")
    if path.suffix.lower() == ".gguf":
        raise FormatError(f"{path} is damaged: a GGUF file begins with the letters GGUF; download it again")
    # llama2.c's files have no magic number. All others may be programs: loading them says what is wrong.
    return Located("checkpoint" if path.suffix == ".bin" else "program", path, path.stem)


def _recognise_folder(folder: Path) -> Located:
    files = {file.name for file in folder.iterdir()}
    name = folder.resolve().name
    found = Located("program", folder, name)
    if found.program.exists():
        return found
    if MANIFEST in files:
        raise InputError(f"{folder}: its {MANIFEST} names {found.program.name}, which is missing")
    if CONFIG in files and _with_suffix(files, ".safetensors"):
        _check_shards(folder)
        return Located("checkpoint", folder, name)
    programs, ggufs = _with_suffix(files, ".pte"), _with_suffix(files, ".gguf")
    if len(programs) + len(ggufs) == 1:
        found = recognise(folder / (programs + ggufs)[0])
        found.name = name
        return found
    raise InputError(f"the folder {folder} {_describe_folder(files, programs + ggufs)}")


def models_of_folder(folder: Path) -> dict[str, Path]:
    """The models inside a folder that is none itself: its folders and files that are models, by name. Files
    of other kinds, further parts of a split GGUF file and projectors of pictures do not count."""
    with suppress(PteronError):
        recognise(folder)
        return {}
    paths = [path for path in sorted(folder.iterdir()) if _is_model(path)]
    return {path.name if path.is_dir() else _PART.sub("", path.name): path for path in paths}


def _is_model(path: Path) -> bool:
    part = _PART.search(path.name)
    is_file = part is not None and int(part[1] or 1) == 1
    if path.name.startswith((".", "mmproj")) or not (path.is_dir() or is_file):
        return False
    try:
        recognise(path)
    except PteronError:
        return False
    return True


def _check_shards(folder: Path) -> None:
    """Raise if a part of a checkpoint's weights is missing."""
    missing = [name for name in shard_names(folder) if not is_there(folder / name)]
    if missing:
        raise InputError(f"{folder}: {INDEX} names weights that are missing: {shorten(missing)}")


def _describe_folder(files: set[str], models: list[str]) -> str:
    """Why a folder is no model, and what to do."""
    if models:
        return f"has several models; name one of them: {shorten(models)}"
    if not files:
        return "is empty"
    if ADAPTER_FILES[0] in files:
        return f"has a LoRA adapter, not a model; {USE_ADAPTER}"
    if _with_suffix(files, ".safetensors"):
        return f"has weights but no {CONFIG}; download the checkpoint again, with all its files"
    pickles = pickled_weights(files)
    if CONFIG in files and pickles:
        return f"has its weights as PyTorch pickles ({shorten(pickles)}); {_TO_SAFETENSORS}"
    if CONFIG in files:
        return f"has a {CONFIG} but no weights (*.safetensors); download them too"
    return (
        f"has no model: neither a program (model.pte), nor {CONFIG} with *.safetensors, nor a GGUF file; it "
        f"has {shorten(files)}"
    )


def pickled_weights(files: Iterable[str]) -> list[str]:
    """The files with weights as torch.save writes them."""
    names = [name for suffix in (".bin", ".pt", ".pth") for name in _with_suffix(files, suffix)]
    return [name for name in names if name.startswith(("pytorch_model", "model", "consolidated"))]


def _with_suffix(files: Iterable[str], suffix: str) -> list[str]:
    return sorted(name for name in files if name.lower().endswith(suffix))


def shorten(names: Iterable[str], most: int = _NAMED) -> str:
    """The first of some names."""
    listed = sorted(names)
    more = len(listed) - most
    return ", ".join(listed[:most]) + (f" and {more} more" if more > 0 else "")
