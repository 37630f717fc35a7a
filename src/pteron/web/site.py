"""export_web: a program or a language model -> the files of a site."""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from html import escape
from math import prod
from pathlib import Path
from typing import Any, Literal, TypeAlias

from pteron.errors import InputError
from pteron.extras import check_installed, has_torch
from pteron.folders import writing_to
from pteron.graph import Shape
from pteron.llm.cache.options import CacheType
from pteron.llm.names.model_names import locate_program
from pteron.names.kinds import Located
from pteron.ops import Target
from pteron.plan import Compiled
from pteron.runtime import Program, load
from pteron.web.check import checks_of
from pteron.web.executable_json import ExecutableWriter, ModuleTable
from pteron.web.language import WebLanguageModel
from pteron.web.methods import WebMethod, web_methods
from pteron.web.planned import plan_ahead
from pteron.web.shapes import Named, shapes_of, wanted_shapes
from pteron.web.tokenizer_json import tokenizer_json
from pteron.web.variants import Variant, chosen_targets
from pteron.web.weights import used_weights, write_file, write_weights
from pteron.wgsl import Module

Json: TypeAlias = Any
Progress: TypeAlias = Callable[[str], None]
Page = Literal["chat", "vision", "sound", "generic"]
STATIC = Path(__file__).parent / "static"
INDEX = "program.json"
FORMAT = "pteron-web"
SHOWN = 4  # planned shapes in a message
VERSION = 1  # of the files, which the player checks
_FILE = re.compile(r"(plans|weights)/[0-9a-f]+\.(json|bin)")  # as `write_file` names them


@dataclass(frozen=True, slots=True)
class Site:
    """What was written: the folder, the bytes of all its files, and the bytes that a page of each variant
    fetches."""

    folder: Path
    bytes: int
    fetched: Mapping[str, int]
    planned: Mapping[str, Sequence[Shape]] = field(default_factory=dict)  # of inputs of several shapes
    kept: tuple[str, ...] = ()  # files of the page that were changed since the last export

    def __str__(self) -> str:
        each = ", ".join(f"{size / 1e6:,.1f} MB ({name})" for name, size in self.fetched.items())
        lines = [f"{self.folder}: {self.bytes / 1e6:,.1f} MB; a visitor fetches {each}"]
        if self.planned:
            each = "; ".join(f"{name} {_listed(shapes)}" for name, shapes in self.planned.items())
            lines.append(f"it serves these shapes: {each}; --shape plans for others")
        if self.kept:
            lines.append(
                f"the page is kept, because it was changed ({', '.join(self.kept)}); --force replaces it"
            )
        return "\n".join(lines)


def _listed(shapes: Sequence[Shape]) -> str:
    more = f" and {len(shapes) - SHOWN} more" if len(shapes) > SHOWN else ""
    return ", ".join(str(list(shape)) for shape in shapes[:SHOWN]) + more


def export_web(
    source: Program | Mapping[str, Program] | str | os.PathLike[str],
    folder: str | os.PathLike[str],
    *,
    variants: Iterable[str] | None = None,
    methods: Sequence[str] | None = None,
    shapes: str | Named | Sequence[str | Named] = (),
    context: int | None = None,
    cache: CacheType | None = None,
    lengths: Sequence[int] | None = None,
    check: bool | None = None,
    labels: Sequence[str] = (),
    data: Json = None,
    page: Page | None = None,
    name: str | None = None,
    force: bool = False,
    progress: Progress = lambda line: None,
) -> Site:
    """Write a folder of static files that runs a model in a browser, on the visitor's GPU.

    `source` is a program, its file, several programs by the names that their methods shall have, or a
    language model: a folder or a name, as `LLM` takes it. All plans are made now. A program has plans for its
    maximum shapes, or for each of `shapes`: names of inputs with live shapes, or a text with ranges of sizes,
    such as "x=1-8x7". A language model has plans for prompts of `lengths` tokens, into which the player cuts
    a prompt, and for all positions of its `context`; `cache` is the element type of its KV cache.

    `variants` names the kinds of adapter to plan for: "subgroups", "hardware" and "software" by default.
    Those with "-f16" have 16-bit floats where the program has them. With `check`, the site has known answers
    in float64, by which the player checks kernels on the visitor's adapter; this takes PyTorch, and is the
    default where it is installed. `labels` are names of classes, in the order of a network's scores, `data`
    is JSON for the page (`program.data()`), and `page` is the kind of the example page. If the folder has the
    page of an earlier export and it was changed, it is kept; `force` replaces it.
    """
    targets = chosen_targets(variants)
    checked = has_torch() if check is None else check
    if checked:
        check_installed(("torch",), "computing known answers in float64", "host")
    located = None if isinstance(source, (Program, Mapping)) else locate_program(source, progress, context)
    if located is not None and _is_language(located):
        _refuse({"shapes": shapes, "labels": labels, "methods": methods}, "not for language models")
        if page not in (None, "chat", "generic"):
            raise InputError(
                f"the page {page} is not for language models; they have the pages chat and generic"
            )
        model = WebLanguageModel.load(located, context, cache, lengths)
        writer = SiteWriter(Path(folder), name or located.name, progress, force=force)
        return _write_language(writer, model, targets, page or "chat", progress, checked=checked)
    only = "only for language models, which have a tokenizer beside the program"
    _refuse({"context": context, "cache": cache, "lengths": lengths}, only)
    loaded: Any = source if located is None else load(located.path, located.data)
    exported, usual = _methods(loaded, methods)
    wanted = wanted_shapes(exported, shapes)
    chosen = _chosen_page(page, exported, wanted, data)
    _check_labels(labels, chosen, exported)
    writer = SiteWriter(Path(folder), name or usual, progress, force=force)
    made = []
    for variant, target in targets.items():
        progress(f"planning for {variant}")
        compiled = {method.name: Compiled(method.prepared, target) for method in exported}
        executables = {
            method.name: plan_ahead(compiled[method.name], map(method.shapes, shapes_of(method, wanted)))
            for method in exported
        }
        checks = (
            {name: checks_of(compiled[name], each) for name, each in executables.items()} if checked else {}
        )
        made.append(Variant(variant, target, executables, checks))
    more = {"labels": list(labels)} if labels else {}
    return writer.write(made, exported, chosen, more, data=data)


def _refuse(options: Mapping[str, object], why: str) -> None:
    given = [option for option, value in options.items() if value not in (None, (), [])]
    if given:
        raise InputError(f"{' and '.join(given)}: {why}")


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


def _is_language(located: Located) -> bool:
    if located.path.is_dir():
        return True
    try:
        return bool(located.folder.tokenizer) and located.path == located.folder.program
    except InputError:
        return False


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


def _is_picture(shape: Shape) -> bool:
    return len(shape) == 4 and shape[:2] == (1, 3)


def _chosen_page(
    page: Page | None, methods: Sequence[WebMethod], wanted: Sequence[Named], data: Json
) -> Page:
    """The page that fits, or the one that is asked for if it can run these methods. A picture is a float
    tensor [1, 3, height, width], and the only input."""
    inputs = methods[0].inputs if len(methods) == 1 else ()
    dtype = inputs[0].dtype if len(inputs) == 1 else None
    shapes = [each.get(inputs[0].name, inputs[0].shape_max) for each in wanted or [{}]] if dtype else []
    sees = dtype is not None and dtype.is_float and all(_is_picture(tuple(shape)) for shape in shapes)
    if page is None:
        return "vision" if sees and min(min(shape[2:]) for shape in shapes) >= 16 else "generic"
    if page == "chat":
        raise InputError("the page chat needs a language model, with its tokenizer; try the page generic")
    if page == "vision" and not sees:
        raise InputError(
            "the page vision needs a program whose only input is a float tensor [1, 3, height, width], not "
            f"({', '.join(map(str, inputs)) or 'several methods'}); name such a shape, or try generic"
        )
    if page == "sound" and (data is None or {method.name for method in methods} != {"encode", "decode"}):
        raise InputError(
            "the page that listens needs the programs encode and decode of a Whisper, and its words"
        )
    return page


def _check_labels(labels: Sequence[str], page: str, methods: Sequence[WebMethod]) -> None:
    if not labels:
        return
    if page != "vision":
        raise InputError(f"labels: the page {page} does not show them; they are for the page vision")
    counts = [prod(spec.shape_max) for spec in methods[0].outputs if spec.kind == "tensor"]
    if len(labels) not in counts:
        raise InputError(
            f"labels: there are {len(labels)}, and no output has as many scores; outputs have "
            f"{', '.join(map(str, counts))}"
        )


class SiteWriter:
    """Writes the files of a site into a folder, which may exist: files of an earlier export are replaced."""

    def __init__(self, folder: Path, name: str, progress: Progress, *, force: bool = False) -> None:
        if folder.exists() and not folder.is_dir():
            raise InputError(f"{folder} is a file; name a folder for the site")
        if folder.is_dir() and any(folder.iterdir()) and not (folder / INDEX).exists():
            raise InputError(f"{folder} is not empty and no site; name another folder")
        self.folder, self.name, self._progress, self._force = folder, name, progress, force

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
        with writing_to(self.folder):
            self.folder.mkdir(parents=True, exist_ok=True)
        before = _read_index(self.folder)
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
            "format": FORMAT,
            "version": VERSION,
            "name": self.name,
            "page": page,
            "methods": {
                method.name: method.to_json(variants[0].executables[method.name]) for method in methods
            },
            "variants": entries,
            "streams": streams,
            **more,
        }
        kept = self._write_page(page, before, index)
        (self.folder / INDEX).write_bytes(_compact(index))
        for file in _files(before) - _files(index):
            (self.folder / file).unlink(missing_ok=True)
        fetched = {
            entry["name"]: entry["bytes"] + sum(streams[number]["bytes"] for number in entry["streams"])
            for entry in entries
        }
        size = sum(path.stat().st_size for path in self.folder.rglob("*") if path.is_file())
        planned = {} if "language" in more else _planned(methods, variants[0])
        return Site(self.folder, size, fetched, planned, kept)

    def _write_page(self, page: str, before: Json, index: Json) -> tuple[str, ...]:
        """Write the player and the page, whose files the index then names. A page that was changed is kept as
        a whole; the names of its changed files."""
        for name in ("player.js", "player.d.ts"):
            shutil.copyfile(STATIC / name, self.folder / name)
        new = {path.name: path.read_bytes() for path in (STATIC / page).iterdir() if path.is_file()}
        for tag in ("title", "h1"):
            before_it, after_it = f"<{tag}>Pteron<".encode(), f"<{tag}>{escape(self.name)}<".encode()
            new["index.html"] = new["index.html"].replace(before_it, after_it)
        files = before.get("pageFiles", {})
        written = {name: digest for name, digest in files.items() if Path(name).name == name}
        there = [name for name in {*new, *written} if (self.folder / name).is_file()]
        changed = [name for name in there if not _is_ours(self.folder / name, written.get(name))]
        if changed and not self._force:
            index["pageFiles"] = written
            return tuple(sorted(changed))
        for name in set(there) - set(new):
            (self.folder / name).unlink()
        for name, data in new.items():
            (self.folder / name).write_bytes(data)
        index["pageFiles"] = {name: hashlib.sha256(data).hexdigest() for name, data in new.items()}
        return ()


def _planned(methods: Sequence[WebMethod], variant: Variant) -> dict[str, list[Shape]]:
    """The planned shapes of inputs that could have others."""
    found: dict[str, list[Shape]] = {}
    for method in methods:
        planned = method.planned(variant.executables[method.name].plans)
        found |= {
            spec.name: planned[spec.name]
            for spec in method.inputs
            if any(spec.dynamic) and spec.name in planned
        }
    return found


def _is_ours(path: Path, digest: str | None) -> bool:
    """Whether a file of a page is as an export wrote it."""
    data = path.read_bytes()
    if digest is not None:
        return hashlib.sha256(data).hexdigest() == digest
    return any(known.read_bytes() == data for known in STATIC.glob(f"*/{path.name}"))


def _read_index(folder: Path) -> Json:
    """The index of an earlier export; an empty one if there is none, or none that can be read."""
    try:
        index = json.loads((folder / INDEX).read_bytes())
    except (OSError, ValueError):
        return {}
    return index if isinstance(index, dict) and index.get("format") == FORMAT else {}


def _files(index: Json) -> set[str]:
    """The plans and weights that an index names."""
    chunks = [chunk for stream in index.get("streams", ()) for chunk in stream["chunks"]]
    others = [index.get("data"), index.get("language", {}).get("tokenizer")]
    named = [each["file"] for each in (*index.get("variants", ()), *chunks, *others) if each]
    return {file for file in named if _FILE.fullmatch(file)}


def _compact(value: Json) -> bytes:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode()
