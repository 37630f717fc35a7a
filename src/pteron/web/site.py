"""export_web: a program or a language model -> the files of a site."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, TypeAlias

from pteron.errors import InputError
from pteron.extras import check_installed, has_torch
from pteron.graph import Shape
from pteron.llm.cache_options import CacheType
from pteron.llm.model_files import program_file
from pteron.llm.model_kinds import Located
from pteron.llm.model_names import PROGRAM_SUFFIXES, locate_program
from pteron.llm.tokenizers.load import find_tokenizer
from pteron.ops import Target
from pteron.plan import Compiled
from pteron.runtime import Program, load
from pteron.web.check import checks_of
from pteron.web.executable_json import ExecutableWriter, ModuleTable
from pteron.web.language import WebLanguageModel
from pteron.web.methods import WebMethod, web_methods
from pteron.web.planned import plan_ahead
from pteron.web.tokenizer_json import tokenizer_json
from pteron.web.variants import Variant, chosen_targets
from pteron.web.weights import used_weights, write_file, write_weights
from pteron.wgsl import Module

Json: TypeAlias = Any
Progress: TypeAlias = Callable[[str], None]
Page = Literal["chat", "vision", "sound", "generic"]
STATIC = Path(__file__).parent / "static"
INDEX = "program.json"
VERSION = 1  # of the files, which the player checks


@dataclass(frozen=True, slots=True)
class Site:
    """What was written: the folder, the bytes of all its files, and the bytes that a page of each variant
    fetches."""

    folder: Path
    bytes: int
    fetched: Mapping[str, int]

    def __str__(self) -> str:
        each = ", ".join(f"{size / 1e6:,.1f} MB ({name})" for name, size in self.fetched.items())
        return f"{self.folder}: {self.bytes / 1e6:,.1f} MB; a visitor fetches {each}"


def export_web(
    source: Program | Mapping[str, Program] | str | os.PathLike[str],
    folder: str | os.PathLike[str],
    *,
    variants: Iterable[str] | None = None,
    methods: Sequence[str] | None = None,
    shapes: Sequence[Mapping[str, Shape]] = (),
    context: int | None = None,
    cache: CacheType | None = None,
    lengths: Sequence[int] | None = None,
    check: bool | None = None,
    labels: Sequence[str] = (),
    data: Json = None,
    page: Page | None = None,
    name: str | None = None,
    progress: Progress = lambda line: None,
) -> Site:
    """Write a folder of static files that runs a model in a browser, on the visitor's GPU.

    `source` is a program, its file, several programs by the names that their methods shall have, or a
    language model: a folder or a name, as `LLM` takes it. All plans are made now. A program has plans for its
    maximum shapes, or for each of `shapes`, which map names of inputs to live shapes. A language model has
    plans for prompts of `lengths` tokens, into which the player cuts a prompt, and for all positions of its
    `context`; `cache` is the element type of its KV cache.

    `variants` names the kinds of adapter to plan for: "subgroups", "hardware" and "software" by default.
    Those with "-f16" have 16-bit floats where the program has them. With `check`, the site has known answers
    in float64, by which the player checks kernels on the visitor's adapter; this takes PyTorch, and is the
    default where it is installed. `labels` are names of classes, in the order of a network's scores, `data`
    is JSON for the page (`program.data()`), and `page` is the kind of the example page.
    """
    targets = chosen_targets(variants)
    checked = has_torch() if check is None else check
    if checked:
        check_installed(("torch",), "computing known answers in float64", "host")
    located = None if isinstance(source, (Program, Mapping)) else _locate(source, context, progress)
    if located is not None and _is_language(located.path):
        model = WebLanguageModel.load(located.path, context, cache, lengths)
        writer = SiteWriter(Path(folder), name or located.name, progress)
        return _write_language(writer, model, targets, page or "chat", progress, checked=checked)
    given = {"context": context, "cache": cache, "lengths": lengths}
    needless = [option for option, value in given.items() if value is not None]
    if needless:
        raise InputError(
            f"{' and '.join(needless)}: only for language models, which have a tokenizer beside the program"
        )
    loaded: Any = source if located is None else load(located.path)
    exported, usual = _methods(loaded, methods)
    _check_names(exported, shapes)
    if page == "sound" and (data is None or {method.name for method in exported} != {"encode", "decode"}):
        raise InputError(
            "the page that listens needs the programs encode and decode of a Whisper, and its words"
        )
    writer = SiteWriter(Path(folder), name or usual, progress)
    made = []
    for variant, target in targets.items():
        progress(f"planning for {variant}")
        compiled = {method.name: Compiled(method.prepared, target) for method in exported}
        executables = {
            method.name: plan_ahead(compiled[method.name], map(method.shapes, _shapes_of(method, shapes)))
            for method in exported
        }
        checks = (
            {name: checks_of(compiled[name], each) for name, each in executables.items()} if checked else {}
        )
        made.append(Variant(variant, target, executables, checks))
    more = {"labels": list(labels)} if labels else {}
    return writer.write(made, exported, page or _page_for(exported), more, data=data)


def _methods(
    source: Program | Mapping[str, Program], names: Sequence[str] | None
) -> tuple[list[WebMethod], str]:
    """The methods of a program, or of several under other names; and the usual name of the site."""
    if isinstance(source, Program):
        return web_methods(source, names), Path(source.file.name).stem
    if names is not None or not source:
        raise InputError("several programs: give one at least, and no names of methods")
    found = []
    for name, program in source.items():
        (method, *others) = web_methods(program, None)
        if others:
            raise InputError(f"{name}: {program.file.name} has several methods; export programs of one each")
        found.append(replace(method, name=name))
    return found, " and ".join(source)


def _locate(source: str | os.PathLike[str], context: int | None, progress: Progress) -> Located:
    """The program of a path or of a model's name: a file or a folder."""
    path = Path(source)
    if path.suffix in PROGRAM_SUFFIXES and path.is_file():
        return Located("program", path, path.stem)
    return locate_program(source, progress, context)


def _is_language(path: Path) -> bool:
    if path.is_dir():
        return True
    try:
        find_tokenizer(path.parent)
    except InputError:
        return False
    return path == program_file(path.parent)


def _write_language(
    writer: SiteWriter,
    model: WebLanguageModel,
    targets: Mapping[str, Target],
    page: str,
    progress: Progress,
    *,
    checked: bool,
) -> Site:
    made = []
    for variant, target in targets.items():
        progress(f"planning for {variant}")
        made.append(model.variant(variant, target, checked=checked))
    more = {"language": {**model.to_json(), "advance": 0}}
    growth = {model.method.name: model.growth}
    return writer.write(
        made, [model.method], page, more, growth, [model.advance], tokenizer_json(model.tokenizer)
    )


def _check_names(methods: Sequence[WebMethod], shapes: Sequence[Mapping[str, Shape]]) -> None:
    known = [name for method in methods for name in method.shapes_max]
    unknown = [name for each in shapes for name in each if name not in known]
    if unknown:
        raise InputError(f"there is no tensor {unknown[0]} to plan for; there are {', '.join(known)}")


def _shapes_of(method: WebMethod, shapes: Sequence[Mapping[str, Shape]]) -> Sequence[Mapping[str, Shape]]:
    """The given shapes as far as a method has inputs of these names; each set once."""
    if not shapes:
        return [{}]
    known = method.shapes_max
    return [{name: shape for name, shape in each.items() if name in known} for each in shapes]


def _page_for(methods: Sequence[WebMethod]) -> Page:
    """A picture is a float tensor [1, 3, height, width], and the only input."""
    inputs = methods[0].inputs if len(methods) == 1 else ()
    shape = inputs[0].shape_max if len(inputs) == 1 else ()
    is_picture = len(shape) == 4 and shape[:2] == (1, 3) and min(shape[2:]) >= 16
    return "vision" if is_picture and inputs[0].dtype is not None and inputs[0].dtype.is_float else "generic"


class SiteWriter:
    """Writes the files of a site into a folder, which may exist: files of an earlier export are replaced."""

    def __init__(self, folder: Path, name: str, progress: Progress) -> None:
        if folder.exists() and not folder.is_dir():
            raise InputError(f"{folder} is a file; name a folder for the site")
        if folder.is_dir() and any(folder.iterdir()) and not (folder / INDEX).exists():
            raise InputError(f"{folder} is not empty and no site; name another folder")
        self.folder, self.name, self._progress = folder, name, progress

    def write(
        self,
        variants: Sequence[Variant],
        methods: Sequence[WebMethod],
        page: str,
        more: Json,
        growth: Mapping[str, Mapping[int, int]] | None = None,
        kernels: Sequence[Module] = (),
        tokenizer: Json = None,
        data: Json = None,
    ) -> Site:
        """Write everything. `more` is added to the index; `growth` of live integers by executable, for loops;
        `kernels` are the first of each variant."""
        self._clear()
        if tokenizer is not None:
            more["language"]["tokenizer"] = write_file(self.folder, "plans", ".json", _compact(tokenizer))
        if data is not None:
            more["data"] = write_file(self.folder, "plans", ".json", _compact(data))
        self._progress("writing weights")
        used = {
            variant.name: [weight for each in variant.executables.values() for weight in used_weights(each)]
            for variant in variants
        }
        streams, places, needed = write_weights(self.folder, used)
        entries = []
        for variant in variants:
            modules = ModuleTable()
            for kernel in kernels:
                modules.number(kernel)
            writers = {
                name: ExecutableWriter(each, places, modules) for name, each in variant.executables.items()
            }
            executables = {
                name: each.header(name, (growth or {}).get(name)) for name, each in writers.items()
            }
            checks = [
                check.to_json(name, writers[name].buffers)
                for name, of_executable in variant.checks.items()
                for check in of_executable
            ]
            written = _compact({"modules": modules.entries, "executables": executables, "checks": checks})
            file = write_file(self.folder, "plans", ".json", written)
            entries.append(
                {"name": variant.name, "needs": variant.needs(), "streams": needed[variant.name], **file}
            )
        index = {
            "format": "pteron-web",
            "version": VERSION,
            "name": self.name,
            "page": page,
            "methods": {method.name: method.to_json() for method in methods},
            "variants": entries,
            "streams": streams,
            **more,
        }
        (self.folder / INDEX).write_bytes(_compact(index))
        self._copy_page(page)
        fetched = {
            entry["name"]: entry["bytes"] + sum(streams[number]["bytes"] for number in entry["streams"])
            for entry in entries
        }
        size = sum(path.stat().st_size for path in self.folder.rglob("*") if path.is_file())
        return Site(self.folder, size, fetched)

    def _clear(self) -> None:
        """Remove the plans and weights of an earlier export."""
        self.folder.mkdir(parents=True, exist_ok=True)
        for name in ("plans", "weights"):
            shutil.rmtree(self.folder / name, ignore_errors=True)

    def _copy_page(self, page: str) -> None:
        for name in ("player.js", "player.d.ts"):
            shutil.copyfile(STATIC / name, self.folder / name)
        for path in (STATIC / page).iterdir():
            if path.is_file():
                shutil.copyfile(path, self.folder / path.name)


def _compact(value: Json) -> bytes:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode()
