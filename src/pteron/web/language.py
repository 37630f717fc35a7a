"""A language model -> what a site of it has besides: samplers, tokenizer, lengths of prompts, chat
template."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from pteron.dtypes import DType, Storage
from pteron.errors import InputError, PteronError, UnsupportedError
from pteron.families.recurrent.recurrence import RECURRENT
from pteron.llm.cache.options import CacheOptions, CacheType, stated_context
from pteron.llm.chat import render
from pteron.llm.sampling import Sampling
from pteron.llm.sampling.form import RING, Form, numbers
from pteron.llm.sampling.graphs import DRAWN, sampler_graph
from pteron.llm.sampling.operator import SAMPLE
from pteron.llm.sampling_options import recommended_options
from pteron.llm.tokenizers.load import load_tokenizer
from pteron.llm.tokenizers.tokenizer import Tokenizer
from pteron.names.kinds import Located
from pteron.names.model_files import GENERATION, ModelFolder
from pteron.ops import Target
from pteron.ops.operand import State
from pteron.passes import prepare
from pteron.plan import Compiled, Executable
from pteron.plan.advance import ADVANCE
from pteron.runtime import Program, load
from pteron.tools.doctor.drawing import hashed
from pteron.web.check import Answer, Check, checks_of
from pteron.web.methods import WebMethod, web_methods
from pteron.web.planned import plan_ahead
from pteron.web.variants import Variant
from pteron.wgsl import Module, compose

Json: TypeAlias = Any
LENGTHS = (1, 4, 16, 64)  # of prompts that have plans, and the program's maximum
LENGTH_MAX = 128
_TALKS = (("user",), ("user", "assistant", "user"), ("user", "assistant", "user", "assistant", "user"))
_MARK = "\u2603{}\u2603"  # in place of a message's content while the chat template is taken apart


@dataclass(frozen=True, slots=True)
class WebLanguageModel:
    """A language model whose decode loop can stay on the GPU."""

    folder: ModelFolder
    program: Program
    method: WebMethod
    tokenizer: Tokenizer
    context: int
    lengths: tuple[int, ...]

    @classmethod
    def load(
        cls, located: Located, context: int | None, cache: CacheType | None, lengths: Sequence[int] | None
    ) -> WebLanguageModel:
        # Rings lose rows, so a page could not go back in a conversation.
        options = CacheOptions(context, cache, rings=False, model=str(located.path))
        program = load(located.program, adapt=options.adapt)
        (method,) = web_methods(program, ["forward"])
        _check_loop(program, method)
        tokens = method.inputs[0]
        most = tokens.shape_max[1]
        usual = LENGTHS if tokens.dynamic[1] else (most,)
        chosen = sorted({*(lengths or (*(each for each in usual if each <= most), min(most, LENGTH_MAX)))})
        if chosen[0] != 1 or chosen[-1] > most or (not tokens.dynamic[1] and most != 1):
            raise InputError(
                f"{program.file.name}: lengths of prompts must have 1 and be at most {most}, not "
                f"{', '.join(map(str, chosen))}"
            )
        length = options.length(program.file) or stated_context(program.file)
        tokenizer = load_tokenizer(located.folder)
        return cls(located.folder, program, method, tokenizer, length, tuple(chosen))

    @property
    def vocabulary(self) -> int:
        return self.method.outputs[0].shape_max[-1]

    @property
    def growth(self) -> Mapping[int, int]:
        """Of the model's live integers at each step: all are the position."""
        return {source.symbol: 1 for source in self.method.prepared.sources}

    @property
    def advance(self) -> Module:
        """The kernel that advances parameters where the sampler cannot."""
        return compose(ADVANCE)

    def variant(self, variant: str, target: Target, *, checked: bool) -> Variant:
        """The model with plans for all lengths and positions, and samplers of all forms."""
        name = self.method.inputs[0].name
        ends = {self.method.shapes({name: (1, length)}): self.context - length + 1 for length in self.lengths}
        compiled = Compiled(self.method.prepared, target)
        model = plan_ahead(compiled, ends, ends)
        found = {self.method.name: model}
        dtype = self.method.outputs[0].dtype or DType.F32
        for flags, form in _forms().items():
            sampler = Compiled(prepare(sampler_graph(self.vocabulary, form, dtype)), target)
            found[f"sample-{flags}"] = plan_ahead(sampler, [sampler.shapes_max], {sampler.shapes_max: 1})
        checks = {self.method.name: checks_of(compiled, model)} if checked else {}
        if checked:
            checks |= {
                name: [_check_draw(each)] for name, each in found.items() if name.startswith("sample-")
            }
        return Variant(variant, target, found, checks)

    def to_json(self) -> Json:
        """What the index says of it, without the tokenizer's file and the number of the kernel that
        advances."""
        tokenizer = self.tokenizer
        ends = tokenizer.eos_ids or _constants(self.program, "get_eos_ids")
        return {
            "method": self.method.name,
            "context": self.context,
            "vocabulary": self.vocabulary,
            "lengths": self.lengths,
            "rewinds": not any(node.name in RECURRENT for node in self.method.prepared.graph.nodes),
            "ring": RING,
            "eos": list(ends),
            "bos": [] if tokenizer.bos_id is None else [tokenizer.bos_id],
            "sampling": {
                _in_javascript(name): value
                for name, value in recommended_options(self.folder.read(GENERATION)).items()
            },
            "chat": chat_form(tokenizer),
        }


def _in_javascript(name: str) -> str:
    """top_k -> topK"""
    first, *others = name.split("_")
    return first + "".join(map(str.capitalize, others))


def _constants(program: Program, name: str) -> tuple[int, ...]:
    """The integers that a method without inputs returns; () if the program has no such method."""
    records = [record for record in program.file.methods if record.name == name and not record.instructions]
    values = [record.values[id] for record in records for id in record.outputs]
    return tuple(value for value in values if isinstance(value, int))


def _check_loop(program: Program, method: WebMethod) -> None:
    """Raise unless it takes tokens and a position, and its live integers are the position."""
    graph, inputs = method.prepared.graph, method.inputs
    is_model = len(inputs) == 2 and len(inputs[0].shape_max) == 2 and bool(method.outputs)
    if not is_model:
        raise UnsupportedError(
            f"{program.file.name}: forward is not a language model with a cache: it takes "
            f"({', '.join(map(str, inputs))}), not (tokens [1, steps], input_pos [1])"
        )
    positioned = all(
        method.taken[position] == 1 for source in method.prepared.sources for position in source.inputs
    )
    if not positioned or len(graph.inputs) != 2:
        raise UnsupportedError(
            f"{program.file.name}: its decode loop cannot stay on the GPU, so a page cannot run it"
        )


def _check_draw(sampler: Executable) -> Check:
    """A draw that can only give the greatest logit: the temperature is so low that no noise changes it."""
    (plans,) = sampler.plans.values()
    logits = hashed(sampler.inputs[0].shape_max[-1], 0)  # type: ignore[union-attr]  # a tensor
    cold = numbers(Sampling(temperature=1e-9, top_k=3, top_p=0.5, seed=1))
    values = {source.symbol: cold[source.inputs[0] - 1] for source in sampler.sources}
    token = int(logits.argmax())
    logprob = -float(np.log(np.exp(logits - logits.max()).sum()))
    count, drawn = len(plans[0].launches), State(DRAWN)
    answers = (
        Answer(0, count, SAMPLE, drawn, 0, Storage.I32, (float(token),), 0.0),
        Answer(0, count, SAMPLE, drawn, 4, Storage.F32, (logprob,), 1e-3),
    )
    limits = (0, *[None] * (len(sampler.inputs) - 1))
    return Check(0, 0, values, limits, answers)


def _forms() -> dict[str, Form]:
    """The samplers of a site by their letters: r random, k top-k, p top-p, c penalties and biases."""
    found = {}
    for flags in ("", "r", "rk", "rp", "rkp"):
        for more in ("", "c"):
            is_changed = more == "c"
            found[flags + more] = Form(
                is_random="r" in flags,
                has_top_k="k" in flags,
                has_top_p="p" in flags,
                has_repetition_penalty=is_changed,
                has_count_penalties=is_changed,
                has_biases=is_changed,
            )
    return found


def chat_form(tokenizer: Tokenizer) -> Json:
    """A chat template as texts around messages; None if the tokenizer has none, or one that depends on more
    than roles.

    Pages have no Jinja. So the template is taken apart here, and a conversation is rendered both ways to see
    that they agree.
    """
    if tokenizer.chat_template is None:
        return None
    bos = "" if tokenizer.bos_id is None else tokenizer.token_text(tokenizer.bos_id)
    eos = tokenizer.token_text(tokenizer.eos_ids[0]) if tokenizer.eos_ids else ""

    def rendered(*roles: str, answer: bool = False, around: str = "") -> str:
        messages = [
            {"role": role, "content": around + _MARK.format(place) + around}
            for place, role in enumerate(roles)
        ]
        return render(messages, tokenizer.chat_template, add_generation_prompt=answer, bos=bos, eos=eos)

    try:
        form, with_system = (_take_apart(rendered, first) for first in ("user", "system"))
        if form is None or not all(_agrees(form, rendered, talk) for talk in _TALKS):
            return None
        same = with_system and all(
            with_system["roles"][role] == form["roles"][role] for role in ("user", "assistant")
        )
        # Some templates cut white space around messages.
        form["trim"] = rendered("user", around=" ") == rendered("user")
        if with_system and same and all(_agrees(with_system, rendered, ("system", *talk)) for talk in _TALKS):
            return {**form, "systemStart": with_system["start"], "roles": with_system["roles"]}
    except PteronError:
        return None
    return form


def _agrees(form: Json, rendered: Any, roles: tuple[str, ...]) -> bool:
    turns = [form["roles"][role] for role in roles]
    text = "".join(before + _MARK.format(place) + after for place, (before, after) in enumerate(turns))
    return bool(form["start"] + text + form["answer"] == rendered(*roles, answer=True))


def _take_apart(rendered: Any, first: str) -> Json | None:
    """The texts around each role, from conversations that differ by one turn."""
    marks = [_MARK.format(place) for place in range(4)]
    roles = (
        (first, "user", "assistant", "user")
        if first == "system"
        else ("user", "assistant", "user", "assistant")
    )
    whole = rendered(*roles)
    parts: list[str] = []
    rest = whole
    for mark in marks:
        before, found, rest = rest.partition(mark)
        if not found:
            return None
        parts.append(before)
    parts.append(rest)
    last = {
        role: rendered(*roles[: place + 1]).partition(marks[place])[2] for place, role in enumerate(roles)
    }
    befores: dict[str, str] = {}
    for place, role in enumerate(roles[1:], start=1):
        after = last[roles[place - 1]]
        if not parts[place].startswith(after):
            return None
        befores[role] = parts[place].removeprefix(after)
    opening = parts[0]
    own = befores.get(first, "") or _opening_of(opening, befores)
    start = opening.removesuffix(own)
    found = {role: [befores.get(role, own), last[role]] for role in dict.fromkeys(roles)}
    asked = rendered(*roles[:2] if first == "system" else roles[:1], answer=True)
    told = rendered(*roles[:2] if first == "system" else roles[:1])
    return {"start": start, "roles": found, "answer": asked.removeprefix(told)}


def _opening_of(opening: str, befores: Mapping[str, str]) -> str:
    """The text before the system message: as that before others, with another role."""
    for role, before in befores.items():
        candidate = before.replace(role, "system")
        if candidate != before and opening.endswith(candidate):
            return candidate
    return opening
