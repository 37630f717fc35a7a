"""What is to be profiled or timed: a method of a program with inputs, or a language model's step."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from pteron.errors import InputError
from pteron.gpu import Device
from pteron.llm.model import LanguageModel
from pteron.llm.model_files import program_file
from pteron.llm.sampling import Sampler, Sampling
from pteron.runtime import Method, Program, load
from pteron.runtime.program import Source
from pteron.tools.inputs import fill_inputs
from pteron.tools.run import Selection, method_name


@dataclass(frozen=True, slots=True)
class Prefill:
    """A language model reads so many tokens, the first of a text."""

    tokens: int

    def __str__(self) -> str:
        return f"prefill of {self.tokens} tokens"


@dataclass(frozen=True, slots=True)
class Decode:
    """A language model reads one token behind so many others."""

    context: int

    def __str__(self) -> str:
        return f"decode at context {self.context}"


_UNDRAWN = ", without the draw of the next token, which goes through the host"
Work: TypeAlias = Selection | Prefill | Decode


@dataclass(frozen=True, slots=True)
class Subject:
    """A method over states of its own, ready to be called with these values again and again."""

    program: Program
    method: Method
    values: tuple[Any, ...]
    what: str
    inputs: tuple[str, ...] = field(default=())  # their types, for people
    sampler: Sampler | None = None  # draws the next token from where a decode step leaves its logits


def opened(
    source: Source | Program, data: Iterable[Source] | Source = (), device: Device | str | None = None
) -> Program:
    """A program, by its file, its bytes, or the folder of a language model."""
    if isinstance(source, Program):
        return source
    if isinstance(source, (str, os.PathLike)) and Path(source).is_dir():
        source = program_file(Path(source))
    return load(source, data, device)


@contextmanager
def prepared(program: Program, work: Work) -> Iterator[Subject]:
    """A subject over states of its own, which end with it: nobody else's are changed."""
    if isinstance(work, Selection):
        name = method_name(program, work.method)
        with program.sequence() as sequence:
            method = sequence[name]
            given = fill_inputs(method.inputs, work.inputs, work.sizes, work.seed)
            yield _subject(program, method, [each.value for each in given], name)
    else:
        with language_model(program) as model, _drawing(model, work) as sampler:
            is_apart = isinstance(work, Decode) and sampler is None
            what = f"{work}{_UNDRAWN if is_apart else ''}"
            subject = _subject(program, model.method, read_before(model, work), what)
            yield replace(subject, sampler=sampler)


@contextmanager
def _drawing(model: LanguageModel, work: Prefill | Decode) -> Iterator[Sampler | None]:
    """What draws the token after a decode step, greedily, where that stays on the GPU."""
    if isinstance(work, Prefill) or not model.is_resident:
        yield None
        return
    sampler = Sampler(model.device, model.vocabulary, Sampling(), model.logits_dtype)
    try:
        yield sampler
    finally:
        sampler.close()


@contextmanager
def language_model(program: Program) -> Iterator[LanguageModel]:
    """A program as a language model, over a cache of its own."""
    model = LanguageModel(program, own_sequence=True)
    try:
        yield model
    finally:
        model.close()


def read_before(model: LanguageModel, work: Prefill | Decode) -> list[Any]:
    """What a model's step is called with; the cache holds what comes before it."""
    count, start = (work.tokens, 0) if isinstance(work, Prefill) else (1, work.context)
    name = model.program.file.name
    if count < 1 or start < 0:
        raise InputError(f"{work}: there must be something to read")
    if model.context and start + count > model.context:
        raise InputError(f"{name}: {work} exceeds the context, which holds {model.context}")
    if len(model.chunks(range(count))) > 1:
        most = model.steps_max if model.is_dynamic else 1
        raise InputError(f"{name}: {work} is more than the program takes at once, {most}")
    stream = token_stream(model, start + count)
    model.reset()
    if start:
        model.prefill(stream[:start])
    return [np.array([stream[start:]], np.int64), np.array([start], np.int64)]


def token_stream(model: LanguageModel, count: int) -> list[int]:
    """The same random tokens every time."""
    drawn: list[int] = np.random.default_rng(0).integers(0, model.vocabulary, count).tolist()
    return drawn


def _subject(program: Program, method: Method, values: list[Any], what: str) -> Subject:
    return Subject(program, method, tuple(values), what, tuple(map(_type, values)))


def _type(value: object) -> str:
    return f"{value.dtype}{list(value.shape)}" if isinstance(value, np.ndarray) else repr(value)
