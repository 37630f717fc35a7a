"""The names of a hub model's files -> those to download.

A model is a program with its folder (pteron.json, or one .pte), a checkpoint (config.json and *.safetensors),
or one of its GGUF files, which `owner/name:TAG` selects: a file name, or a quantisation as Q4_K_M.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath

from pteron.errors import InputError, UnsupportedError
from pteron.format.gguf import JOIN_PARTS
from pteron.llm.model_files import MANIFEST
from pteron.llm.model_kinds import ADAPTER_FILES, CONFIG, USE_ADAPTER, pickled_weights, shorten

_DEFAULT_TAG = "Q4_K_M"  # as in llama.cpp and ollama
_PART = re.compile(r"-\d{5}-of-(\d{5})\.gguf$", re.IGNORECASE)
_BESIDE = (".json", ".jinja", ".model", ".tiktoken")  # configuration and tokenizer
_NOTICES = ("LICENSE", "LICENCE", "NOTICE", "merges.txt")


@dataclass(frozen=True, slots=True)
class Selection:
    """The files of a model, in the order of download. The file by which a folder is recognised comes last, so
    that an incomplete folder is no model. `main` is the file to load; "" for the folder."""

    files: tuple[str, ...]
    main: str = ""


def select_files(listed: Sequence[str], tag: str | None, model: str) -> Selection:
    """The files to download; `model` is the name in messages."""
    files = [name for name in listed if ".." not in PurePosixPath(name).parts and not name.startswith("/")]
    top = [name for name in files if "/" not in name]
    beside = [name for name in top if name.endswith(_BESIDE) or name.startswith(_NOTICES)]
    programs = [name for name in top if name.endswith((".pte", ".ptd"))]
    weights = _weights(top)
    if tag is not None:
        return _select_tagged(files, beside, tag, model)
    if MANIFEST in top:
        return Selection(_with_last([*beside, *programs], MANIFEST))
    if CONFIG in top and weights:
        return Selection(_with_last([*beside, *weights], CONFIG))
    ggufs = _ggufs(files)
    if ggufs:
        return _select_gguf(ggufs, None, model)
    if len(programs) == 1:
        return Selection((*beside, programs[0]), programs[0])
    if programs:
        raise InputError(
            f"{model} has several programs; name one: {model}:{programs[0]}, {shorten(programs[1:])}"
        )
    if ADAPTER_FILES[0] in top:
        raise InputError(f"{model} is a LoRA adapter, not a model; {USE_ADAPTER}")
    pickles = pickled_weights(top)
    found = f"only {shorten(files)}" if files else "no files"
    if pickles:
        found = f"weights as PyTorch pickles only ({shorten(pickles)})"
    raise InputError(
        f"{model} has no model that can be used: neither {CONFIG} with *.safetensors, nor a GGUF file, nor a "
        f"program (.pte); it has {found}"
    )


def _select_tagged(files: Sequence[str], beside: Sequence[str], tag: str, model: str) -> Selection:
    exact = [name for name in files if tag in (name, PurePosixPath(name).name)]
    if not exact or tag.lower().endswith(".gguf"):
        return _select_gguf(exact or _ggufs(files), None if exact else tag, model)
    if exact[0].endswith(".pte"):
        return Selection((*beside, exact[0]), exact[0])
    raise InputError(f"{model}: {exact[0]} is neither a GGUF file nor a program (.pte)")


def _select_gguf(ggufs: Sequence[str], tag: str | None, model: str) -> Selection:
    """The one file that a tag selects; without a tag the only one, or the one in the usual quantisation."""
    found = list(ggufs)
    if tag is not None:
        found = _tagged(ggufs, tag)
    elif len(ggufs) > 1:
        found = _tagged(ggufs, _DEFAULT_TAG) or found
    repository = model.rpartition(":")[0] if tag is not None else model
    if not found:
        has = f"has {shorten(ggufs)}" if ggufs else "has no GGUF files"
        raise InputError(f"no GGUF file of {repository} matches {tag!r}; it {has}")
    part = _PART.search(found[0])
    if part and all(_PART.search(name) for name in found):
        raise UnsupportedError(f"{found[0]} of {repository} is one of {int(part[1])} parts; {JOIN_PARTS}")
    if len(found) > 1:
        raise InputError(
            f"{model} has {len(found)} GGUF files; name one, as in {repository}:{found[0]}: {shorten(found)}"
        )
    return Selection((found[0],), found[0])


def _tagged(names: Sequence[str], tag: str) -> list[str]:
    """The file names with a tag as a part of their own: Q4_K is not in model-Q4_K_M.gguf."""
    pattern = re.compile(rf"(?:^|[-._/]){re.escape(tag)}(?:[-.]|$)", re.IGNORECASE)
    return [name for name in names if pattern.search(name)]


def _ggufs(files: Sequence[str]) -> list[str]:
    """The GGUF files, without those of vision encoders (mmproj) and importance matrices."""
    names = (name for name in files if name.lower().endswith(".gguf"))
    return [name for name in names if not re.search("mmproj|imatrix", name, re.IGNORECASE)]


def _weights(files: Sequence[str]) -> list[str]:
    """The *.safetensors of a checkpoint, without a second copy of them in Mistral's own layout."""
    weights = [name for name in files if name.endswith(".safetensors")]
    return [name for name in weights if not name.startswith("consolidated")] or weights


def _with_last(files: Sequence[str], last: str) -> tuple[str, ...]:
    return (*(name for name in files if name != last), last)
