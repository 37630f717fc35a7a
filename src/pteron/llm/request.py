"""Request: the prompt and options of a generation, checked as far as possible without a model.

In: a prompt or a conversation, and options by name. Out: a Request. `GenerateOptions` lists all options;
`SamplingOptions` has those that are fields of `Sampling`. A misspelled option is an error: otherwise the chat
template would silently accept it as one of its variables.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, fields, replace
from difflib import get_close_matches
from reprlib import repr as shortened
from typing import Any, TypeAlias, TypedDict

from pteron.errors import InputError
from pteron.llm.arguments import integer, integers, number, strings
from pteron.llm.chat import Message, variables_of
from pteron.llm.grammar import Grammar
from pteron.llm.images.prompt import PromptImage, key_and_row
from pteron.llm.sampling import Sampling
from pteron.llm.text_model import Overflow, TextModel

Prompt: TypeAlias = str | Sequence[int]
Conversation: TypeAlias = Sequence[Message]
GrammarSource: TypeAlias = Grammar | Mapping[str, Any] | re.Pattern[str]  # what `grammar=` may be


@dataclass(frozen=True, slots=True)
class Request:
    """A prompt's tokens, and how to continue them.

    A string in `stop` or a token in `stop_ids` (None: the model's own) ends the output and is not part of it.
    The output follows `grammar`, if given. After `seconds`, counted from `Engine.submit`, the answer ends
    with the tokens generated so far. `resident` is the option of `LLM.generate`; an engine accepts only None.
    With `speculate=False` the request does not use the model's speculative decoding. `adapter` is the name of
    a LoRA adapter that the model was loaded with. `dropped_tokens` is the number of prompt tokens that were
    truncated to fit the context. `images` are those whose rows are among the ids (llm/images/prompt.py).
    """

    ids: tuple[int, ...]
    max_new_tokens: int = 256
    sampling: Sampling = Sampling()  # noqa: RUF009  # frozen
    stop: tuple[str, ...] = ()
    stop_ids: frozenset[int] | None = None
    grammar: Grammar | None = None
    seconds: float | None = None
    resident: bool | None = None
    dropped_tokens: int = 0
    speculate: bool = True
    adapter: str | None = None
    images: tuple[PromptImage, ...] = ()

    @property
    def text_ids(self) -> tuple[int, ...]:
        """The ids without those of the request's images."""
        keys = {image.key for image in self.images}
        if not keys:
            return self.ids
        return tuple(id for id in self.ids if id >= 0 or key_and_row(id)[0] not in keys)

    def __post_init__(self) -> None:
        count = integer("max_new_tokens", self.max_new_tokens)
        if count < 1:
            raise InputError(f"max_new_tokens must be at least 1, not {count}")
        ids = tuple(integers("ids", self.ids))
        if not ids:
            raise InputError("a request needs at least one token to continue")
        if not isinstance(self.sampling, Sampling):
            raise InputError(f"sampling must be a Sampling, not {shortened(self.sampling)}")
        if self.grammar is not None and not isinstance(self.grammar, Grammar):
            raise InputError(f"grammar must be a Grammar, not {shortened(self.grammar)}")
        stop_ids = self.stop_ids
        if stop_ids is not None:
            listed = integers("stop_ids", list(stop_ids) if isinstance(stop_ids, Set) else stop_ids)
            if listed and min(listed) < 0:
                raise InputError(f"stop_ids must be token ids, 0 or more, not {min(listed)}")
            object.__setattr__(self, "stop_ids", frozenset(listed))
        if self.seconds is not None:
            seconds = number("seconds", self.seconds)
            if not seconds > 0:
                raise InputError(f"seconds must be above 0, not {seconds}")
            object.__setattr__(self, "seconds", seconds)
        object.__setattr__(self, "ids", ids)
        object.__setattr__(self, "max_new_tokens", count)
        object.__setattr__(self, "stop", tuple(strings("stop", self.stop)))


class SamplingOptions(TypedDict, total=False):
    """How tokens are drawn: the fields of `Sampling`."""

    temperature: float
    top_k: int
    top_p: float
    min_p: float
    repetition_penalty: float
    seed: int
    presence_penalty: float
    frequency_penalty: float
    logit_bias: Mapping[int, float] | tuple[tuple[int, float], ...]
    top_logprobs: int


class GenerateOptions(SamplingOptions, total=False):
    """The options of `LLM.generate`, documented there."""

    max_new_tokens: int
    sampling: Sampling | None
    stop: str | Sequence[str]
    stop_ids: Sequence[int] | None
    overflow: Overflow
    grammar: GrammarSource | None
    adapter: str | None
    resident: bool | None
    speculate: bool


_SAMPLING_OPTIONS = frozenset(field.name for field in fields(Sampling))
_OPTIONS = sorted(GenerateOptions.__optional_keys__)
_SIMILARITY = 0.75  # minimum for a misspelled option: "top" matches "top_k", "enable_thinking" none


def text_request(llm: TextModel, prompt: Prompt, **options: Any) -> Request:
    """A request to continue a text, or token ids."""
    _check_one_prompt(prompt)
    return _request(llm, llm.encode(prompt), **options)


def _request(
    llm: TextModel,
    ids: Sequence[int],
    images: tuple[PromptImage, ...] = (),
    *,
    max_new_tokens: int = 256,
    sampling: Sampling | None = None,
    stop: str | Sequence[str] = (),
    stop_ids: Sequence[int] | None = None,
    overflow: Overflow = "error",
    grammar: GrammarSource | None = None,
    adapter: str | None = None,
    resident: bool | None = None,
    speculate: bool = True,
    **sampling_options: object,
) -> Request:
    count = integer("max_new_tokens", max_new_tokens)
    chosen = merge_sampling(sampling, sampling_options)
    llm.model.check_adapter(adapter)
    if not isinstance(speculate, bool):
        raise InputError(
            f"speculate must be True or False, not {speculate!r}; LLM(..., speculate=...) chooses how"
        )
    fitted = llm.fit_to_context(ids, count, overflow)
    return Request(
        tuple(fitted),
        count,
        chosen,
        tuple(strings("stop", stop)),
        frozenset(llm.eos_ids if stop_ids is None else integers("stop_ids", stop_ids)),
        None if grammar is None else Grammar.of(llm.tokenizer, grammar, eos_ids=llm.eos_ids),
        resident=resident,
        dropped_tokens=len(ids) - len(fitted),
        speculate=speculate,
        adapter=adapter,
        images=images,
    )


def _check_one_prompt(prompt: object) -> None:
    if isinstance(prompt, (list, tuple)) and any(isinstance(part, str) for part in prompt):
        raise InputError(
            "the prompt must be one text or token ids; generate_batch(prompts) continues several texts"
        )
    if isinstance(prompt, (list, tuple)) and any(isinstance(part, Mapping) for part in prompt):
        raise InputError("the prompt must be a text or token ids; chat(messages) answers a list of messages")


def chat_request(
    llm: TextModel,
    messages: Conversation,
    *,
    tools: Sequence[object] | None = None,
    max_new_tokens: int = 512,
    stop: str | Sequence[str] = (),
    **named: Any,
) -> Request:
    """A request to answer a conversation. Names that are not options are variables of the chat template."""
    options, variables = _split_options(named, llm.tokenizer.chat_template)
    text, images = llm.render_chat(messages, tools, **variables), tuple(llm.read_images(messages))
    return _request(
        llm,
        llm.encode_rendered(text, images),
        images,
        max_new_tokens=max_new_tokens,
        stop=[*strings("stop", stop), *llm.chat_stops],
        **options,
    )


def to_request(llm: TextModel, prompt: Prompt | Conversation, options: Mapping[str, Any]) -> Request:
    """A request to continue a text, or to answer a conversation (a list of messages)."""
    is_list = isinstance(prompt, Sequence) and not isinstance(prompt, str)
    if is_list and any(isinstance(part, Mapping) for part in prompt):
        return chat_request(llm, prompt, **options)  # type: ignore[arg-type]  # checked above
    return text_request(llm, prompt, **options)  # type: ignore[arg-type]  # `encode` checks it


def batch_requests(
    llm: TextModel, prompts: Sequence[Prompt | Conversation], options: Mapping[str, Any]
) -> list[Request]:
    """Requests with the same options; `adapter` may be a list, one for each prompt. An error names the wrong
    prompt, before any request starts."""
    if isinstance(prompts, (str, bytes)) or not isinstance(prompts, Sequence):
        raise InputError("prompts must be a list of texts, token ids or conversations, not a single one")
    adapters = options.get("adapter")
    if not isinstance(adapters, (list, tuple)):
        adapters = [adapters] * len(prompts)
    if len(adapters) != len(prompts):
        raise InputError(
            f"adapter is a list of {len(adapters)} for {len(prompts)} prompts; give one name, or one for each"
        )
    found = []
    for index, (prompt, adapter) in enumerate(zip(prompts, adapters, strict=True)):
        try:
            found.append(to_request(llm, prompt, {**options, "adapter": adapter}))
        except InputError as error:
            raise InputError(f"prompt {index} of {len(prompts)}: {error}") from error
    return found


def merge_sampling(sampling: Sampling | None, options: Mapping[str, object]) -> Sampling:
    """`sampling` (None: greedy), with the fields in `options` replaced."""
    if sampling is not None and not isinstance(sampling, Sampling):
        raise InputError(f"sampling must be a Sampling, not {shortened(sampling)}")
    for name in options:
        if name not in _SAMPLING_OPTIONS:
            near = _similar_option(name)
            hint = f"did you mean {near}?" if near else f"known are {', '.join(_OPTIONS)}"
            raise InputError(f"unknown option {name!r}: {hint}")
    return replace(sampling or Sampling(), **options)  # type: ignore[arg-type]  # each is checked by Sampling


def _split_options(named: Mapping[str, Any], template: str | None) -> tuple[dict[str, Any], dict[str, Any]]:
    """Options of a request, and variables of the chat template."""
    options = {name: value for name, value in named.items() if name in _OPTIONS}
    variables = {name: value for name, value in named.items() if name not in _OPTIONS}
    for name in variables:
        near = _similar_option(name)
        if near and name not in variables_of(template):
            raise InputError(
                f"{name!r} is neither an option nor a variable of the chat template: did you mean {near}?"
            )
    return options, variables


def _similar_option(name: str) -> str | None:
    prefixed = [option for option in _OPTIONS if len(name) > 2 and option.startswith(name)]  # such as `temp`
    return next(iter(prefixed or get_close_matches(name, _OPTIONS, 1, _SIMILARITY)), None)
