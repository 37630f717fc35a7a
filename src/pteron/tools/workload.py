"""What to run, measure, compare or estimate: a method of a program with inputs, or a language model's steps;
and a call of it that can be repeated."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from pteron.errors import InputError
from pteron.format.source import Source
from pteron.gpu import Device
from pteron.llm.cache.options import CacheOptions
from pteron.llm.model import LanguageModel
from pteron.llm.names.model_names import locate_source
from pteron.llm.sampling import Sampler, Sampling
from pteron.runtime import Method, Program, load
from pteron.tools.inputs import Input, LiveSize, fill_inputs


@dataclass(frozen=True, slots=True)
class Selection:
    """A method (default: `forward`, or the only one) and its inputs: random ones where none are given."""

    method: str | None = None
    inputs: Sequence[Input] = ()
    sizes: Sequence[LiveSize] = ()
    seed: int = 0


@dataclass(frozen=True, slots=True)
class Prompt:
    """A language model reads these tokens, then makes greedy decode steps."""

    tokens: Sequence[int]
    steps: int = 0
    method: str | None = None


@dataclass(frozen=True, slots=True)
class Prefill:
    """A language model reads this many tokens of a new sequence in one call."""

    tokens: int

    def __str__(self) -> str:
        return f"prefill of {self.tokens} tokens"


@dataclass(frozen=True, slots=True)
class Decode:
    """A language model reads one token, with this many in its KV cache."""

    context: int

    def __str__(self) -> str:
        return f"decode at context {self.context}"


_WITHOUT_SAMPLER = ", without sampling, which runs on the host"
Workload: TypeAlias = Selection | Prefill | Decode


@dataclass(frozen=True, slots=True)
class PreparedWorkload:
    """A method with states of its own, and the values to call it with repeatedly."""

    program: Program
    method: Method
    values: tuple[Any, ...]
    what: str
    inputs: tuple[str, ...]  # their types, for reports
    sampler: Sampler | None = None  # samples the next token from the logits of a decode step


def method_name(program: Program, wanted: str | None) -> str:
    """The wanted method, else `forward`, or the only one."""
    name = wanted or ("forward" if "forward" in program or len(program) != 1 else program.methods[0])
    if name not in program:
        raise InputError(f"{program.file.name} has no method {name!r}; it has {', '.join(program.methods)}")
    return name


@contextmanager
def open_program(
    source: Source | Program,
    data: Iterable[Source] | Source = (),
    device: Device | str | None = None,
    *,
    digits: int | None = None,
    products: str | None = None,
    cache: CacheOptions | None = None,
) -> Iterator[Program]:
    """A program from its file, its bytes, or a model's name; a loaded one stays open."""
    if isinstance(source, Program):
        if (digits, products) != (None, None):
            raise InputError(
                "a loaded program has its precision: give `digits` and `products` to pteron.load"
            )
        yield source
        return
    source, data = locate_source(source, data)
    adapt = cache.adapt if cache else None
    with load(source, data, device, digits=digits, products=products, adapt=adapt) as program:
        if cache is not None:
            cache.check(program.device)
        yield program


@contextmanager
def prepare_workload(program: Program, work: Workload) -> Iterator[PreparedWorkload]:
    """A call over its own states, which are freed at the end."""
    if isinstance(work, Selection):
        name = method_name(program, work.method)
        with program.sequence() as sequence:
            method = sequence[name]
            given = fill_inputs(method.inputs, work.inputs, work.sizes, work.seed)
            yield _prepared(program, method, [each.value for each in given], name)
    else:
        with language_model(program) as model, ExitStack() as stack:
            sampler, what = None, str(work)
            if isinstance(work, Decode) and model.is_resident:
                sampler = stack.enter_context(greedy_sampler(model))
            elif isinstance(work, Decode):
                what += _WITHOUT_SAMPLER
            yield _prepared(program, model.method, prepare_step(model, work), what, sampler)


def greedy_sampler(model: LanguageModel) -> closing[Sampler]:
    return closing(Sampler(model.device, model.vocabulary, Sampling(), model.logits_dtype))


def language_model(program: Program, context: int | None = None) -> closing[LanguageModel]:
    """A program as a language model, with its own KV cache."""
    return closing(LanguageModel(program, own_sequence=True, context=context))


def prepare_step(model: LanguageModel, work: Prefill | Decode) -> list[Any]:
    """Fill the KV cache with the context of a step; the inputs of the step."""
    count, start = (work.tokens, 0) if isinstance(work, Prefill) else (1, work.context)
    name = model.program.file.name
    if count < 1 or start < 0:
        raise InputError(f"{work}: expected at least one token and no negative context")
    if model.context and start + count > model.context:
        raise InputError(f"{name}: {work} exceeds the context, which holds {model.context}")
    if len(model.chunks(range(count))) > 1:
        most = model.steps_max if model.is_dynamic else 1
        raise InputError(f"{name}: {work} is more than the program takes in one call, {most}")
    tokens = random_tokens(model, start + count)
    model.reset()
    if start:
        model.prefill(tokens[:start])
    return [np.array([tokens[start:]], np.int64), np.array([start], np.int64)]


def random_tokens(model: LanguageModel, count: int) -> list[int]:
    """Random tokens, the same every time."""
    tokens: list[int] = np.random.default_rng(0).integers(0, model.vocabulary, count).tolist()
    return tokens


def _prepared(
    program: Program, method: Method, values: list[Any], what: str, sampler: Sampler | None = None
) -> PreparedWorkload:
    types = tuple(
        f"{value.dtype}{list(value.shape)}" if isinstance(value, np.ndarray) else repr(value)
        for value in values
    )
    return PreparedWorkload(program, method, tuple(values), what, types, sampler)
