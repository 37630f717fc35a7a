"""The names of a hub model's files -> those to download.

A model is a program with its folder (pteron.json, or one .pte), a checkpoint (config.json and *.safetensors),
or one of its GGUF files. `owner/name:TAG` selects one file: by its name, or by a quantisation as Q4_K_M.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath

from pteron.errors import InputError, UnsupportedError
from pteron.format.gguf import JOIN_PARTS
from pteron.names.kinds import ADAPTER_FILES, CONFIG, USE_ADAPTER, Kind, pickled_weights, shorten
from pteron.names.model_files import MANIFEST

_DEFAULT_TAG = "Q4_K_M"  # as in llama.cpp and ollama
_PART = re.compile(r"-\d{5}-of-(\d{5})\.gguf$", re.IGNORECASE)
_BESIDE = (".json", ".jinja", ".model", ".tiktoken")  # configuration and tokenizer
_NOTICES = ("LICENSE", "LICENCE", "NOTICE", "merges.txt")
_PROGRAMS, _WEIGHTS = (".pte", ".bpte"), ".ptd"
_LISTED = 40  # programs that a message names, where one of them is wanted


@dataclass(frozen=True, slots=True)
class Selection:
    """The files of a model, in the order of download. The file by which a folder is recognised comes last, so
    that an incomplete folder is no model. `main` is the file to load; "" for the folder."""

    files: tuple[str, ...]
    main: str = ""

    @property
    def kind(self) -> Kind:
        last = self.files[-1]
        return "gguf" if last.lower().endswith(".gguf") else "checkpoint" if last == CONFIG else "program"


def select_files(
    listed: Sequence[str], tag: str | None, model: str, *, programs_only: bool = False
) -> Selection:
    """The files to download; `model` is the name in messages. With `programs_only`, checkpoints and GGUF
    files beside a program do not count."""
    files = [name for name in listed if ".." not in PurePosixPath(name).parts and not name.startswith("/")]
    top = [name for name in files if "/" not in name]
    programs = [name for name in files if name.endswith(".pte")]
    weights, ggufs = _weights(top), _ggufs(files)
    if tag is not None:
        return _select_tagged(files, tag, model)
    if MANIFEST in top:
        beside = [name for name in top if name.endswith((".pte", _WEIGHTS))]
        return Selection(_with_last([*_beside(top, MANIFEST), *beside], MANIFEST))
    is_other = not (programs and programs_only)
    if is_other and CONFIG in top and weights:
        return Selection(_with_last([*_beside(top, CONFIG), *weights], CONFIG))
    if is_other and ggufs:
        return _select_gguf(ggufs, None, model)
    if programs:
        return _select_program(files, programs, model)
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


def weights_beside(listed: Sequence[str], program: str) -> list[str]:
    """The weight file of a program: the only one in its folder. Of several, a caller names those it means."""
    found = [name for name in _in_folder(listed, program) if name.endswith(_WEIGHTS)]
    return found if len(found) == 1 else []


def _select_tagged(files: Sequence[str], tag: str, model: str) -> Selection:
    exact = [tag] if tag in files else [name for name in files if PurePosixPath(name).name == tag]
    if tag.endswith(_PROGRAMS):
        return _select_program(files, exact, model)
    if not exact or tag.lower().endswith(".gguf"):
        return _select_gguf(exact or _ggufs(files), None if exact else tag, model)
    if exact[0].endswith(_WEIGHTS):
        return Selection((exact[0],), exact[0])
    raise InputError(f"{model}: {exact[0]} is neither a GGUF file nor a program (.pte)")


def _select_program(files: Sequence[str], found: Sequence[str], model: str) -> Selection:
    """The one program that a name means; else an error that lists all."""
    if len(found) == 1:
        return Selection((*_beside(files, found[0]), *weights_beside(files, found[0]), found[0]), found[0])
    programs = [name for name in files if name.endswith(_PROGRAMS)]
    weights = [name for name in files if name.endswith(_WEIGHTS)]
    repository = model.partition(":")[0]
    has = f"it has {shorten(programs, _LISTED)}" if programs else "it has no programs"
    if weights:
        has += f"; weights, for `data`: {shorten(weights, _LISTED)}"
    if not found:
        raise InputError(f"{model}: {repository} has no such program; {has}")
    raise InputError(f"{model} means {len(found)} programs; name one, as in {repository}:{found[0]}; {has}")


def _beside(files: Sequence[str], main: str) -> list[str]:
    """Configuration, tokenizer and notices in the folder of a file."""
    found = _in_folder(files, main)
    return [name for name in found if PurePosixPath(name).name.startswith(_NOTICES) or name.endswith(_BESIDE)]


def _in_folder(files: Sequence[str], main: str) -> list[str]:
    folder = PurePosixPath(main).parent
    return [name for name in files if PurePosixPath(name).parent == folder]


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
