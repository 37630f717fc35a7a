"""LLM: a program and its tokenizer, text in and a stream of text out.

llm = LLM("folder")
for piece in llm.generate("Once upon a time"):
    print(piece.text, end="", flush=True)
"""

from __future__ import annotations

import os
import time
from collections.abc import Generator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, get_args

from pteron.errors import FormatError, InputError
from pteron.gpu import Device
from pteron.llm.chat import Message, render
from pteron.llm.entered import work_on
from pteron.llm.generate import LoopCounters, generate_step
from pteron.llm.given import existing, integer, integers, strings
from pteron.llm.grammar import Grammar, Matcher
from pteron.llm.model import LanguageModel
from pteron.llm.pool import Pool
from pteron.llm.sampling import Sampling
from pteron.llm.settings import GENERATION, program_file, read_sampling
from pteron.llm.stopping import StopScanner
from pteron.llm.tokenizer import Tokenizer
from pteron.llm.vocabularies.load import load_tokenizer
from pteron.runtime import load

Overflow = Literal["error", "truncate"]


@dataclass(frozen=True, slots=True)
class Piece:
    """One token of a generation: the text it completed (none, where a character or a stop string is still
    open), its log-probability, and with `top_logprobs` the likeliest tokens with theirs."""

    token: int
    text: str
    logprob: float
    top: tuple[tuple[int, float], ...] = ()


@dataclass(slots=True)
class Statistics:
    """What a generation took. Seconds are wall time; the prompt's end at the first token."""

    prompt_tokens: int = 0
    reused_tokens: int = 0  # of the prompt, whose cache was still there
    dropped_tokens: int = 0  # the oldest of the prompt, for which the context had no room
    new_tokens: int = 0
    prompt_seconds: float = 0.0
    decode_seconds: float = 0.0
    stalls: int = 0
    finish_reason: str = ""  # "stop": a stop id or string; "length": max_new_tokens; "context": no room left

    @property
    def prompt_rate(self) -> float:
        """Prompt tokens per second, those that had to be read."""
        read = self.prompt_tokens - self.reused_tokens
        return read / self.prompt_seconds if self.prompt_seconds else 0.0

    @property
    def decode_rate(self) -> float:
        """Tokens per second after the first."""
        return (self.new_tokens - 1) / self.decode_seconds if self.decode_seconds else 0.0


class LLM:
    """A language model that reads and writes text.

    `path` is a program (.pte) or a folder made by `pteron export llm`; `tokenizer` a file, a folder or a
    Tokenizer, by default the one beside the program. What the model has read stays in its cache: a prompt
    that begins like an earlier one, as every turn of a conversation does, is read from where they part.
    `digits=2` decodes models of 4-bit weights a little quicker and less exactly (see `pteron.load`).
    `sampling` is how the model's authors would draw tokens (its generation_config.json), greedy where they
    say nothing: `llm.generate(prompt, sampling=llm.sampling)`.

    Streams are independent of each other, in one thread or several: each has a sequence with a cache of its
    own while it is open, 16 at most.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        tokenizer: str | os.PathLike[str] | Tokenizer | None = None,
        *,
        data: Sequence[str | os.PathLike[str]] = (),
        device: Device | str | None = None,
        digits: int | None = None,
    ) -> None:
        path = existing(path)
        folder = path if path.is_dir() else path.parent
        file = program_file(folder) if path.is_dir() else path
        self.tokenizer = (
            tokenizer if isinstance(tokenizer, Tokenizer) else load_tokenizer(tokenizer or folder)
        )
        self.sampling = _recommended(folder)
        self.program = load(file, data, device, digits=digits)
        self.model = LanguageModel(self.program)
        self.statistics = Statistics()
        self._pool = Pool(self.model)

    @property
    def eos_ids(self) -> tuple[int, ...]:
        """The tokens that end a text."""
        return self.tokenizer.eos_ids or self.model.eos_ids

    def generate(
        self,
        prompt: str | Sequence[int],
        *,
        max_new_tokens: int = 256,
        sampling: Sampling | None = None,
        stop: str | Sequence[str] = (),
        stop_ids: Sequence[int] | None = None,
        overflow: Overflow = "error",
        grammar: Grammar | None = None,
        resident: bool | None = None,
    ) -> Generator[Piece, None, None]:
        """Continue a text, or token ids, piece by piece. `statistics` tells what it took.

        Stop ids (by default the model's own) and a stop string, or several, end the generation and are not
        part of its text. A prompt that leaves no room in the context is an error, or with
        `overflow="truncate"` loses its oldest tokens. With a `grammar` the text is one that it allows, and
        ends where that does; one that `max_new_tokens` cuts off is the beginning of one.

        Equal prompts and settings give the same log-probabilities to the last bit, on one adapter, where the
        cache holds as much of the prompt: after `reset`, nothing. What is left to read is read by kernels for
        as many tokens, and these round differently.
        """
        count = integer("max_new_tokens", max_new_tokens)
        if sampling is not None and not isinstance(sampling, Sampling):
            raise InputError(f"sampling must be a Sampling, not {sampling!r}")
        if grammar is not None and not isinstance(grammar, Grammar):
            raise InputError(f"grammar must be a Grammar, not {grammar!r}")
        ids = self._ids(prompt)
        fitted = self._fitted(ids, count, overflow)
        return self._generate(
            fitted,
            len(ids) - len(fitted),
            count,
            sampling or Sampling(),
            StopScanner(strings("stop", stop)),
            frozenset(self.eos_ids if stop_ids is None else integers("stop_ids", stop_ids)),
            grammar.matcher() if grammar else None,
            resident,
        )

    def chat(
        self,
        messages: Sequence[Message],
        *,
        max_new_tokens: int = 512,
        sampling: Sampling | None = None,
        stop: str | Sequence[str] = (),
        overflow: Overflow = "error",
        grammar: Grammar | None = None,
        **variables: object,
    ) -> Generator[Piece, None, None]:
        """The assistant's answer to a conversation, rendered by the model's chat template."""
        tokenizer = self.tokenizer
        names = {
            "bos": "" if tokenizer.bos_id is None else tokenizer.token_text(tokenizer.bos_id),
            "eos": tokenizer.token_text(tokenizer.eos_ids[0]) if tokenizer.eos_ids else "",
        }
        text = render(messages, tokenizer.chat_template, **names, **variables)  # type: ignore[arg-type]  # any name
        ids = tokenizer.encode(text, bos=tokenizer.adds_bos, special=True)
        if tokenizer.chat_template is None:
            stop = [*strings("stop", stop), "\nUser:"]
        return self.generate(
            ids,
            max_new_tokens=max_new_tokens,
            sampling=sampling,
            stop=stop,
            overflow=overflow,
            grammar=grammar,
        )

    def reset(self) -> None:
        """Forget what was read; streams that are open go on undisturbed."""
        self._pool.forget()

    def close(self) -> None:
        """Free the GPU memory. Streams that are open end with an error."""
        work_on(self.model.device)  # refused in the midst of it, before anything is freed
        self._pool.close()
        self.model.recent.clear()
        self.program.close()

    def __enter__(self) -> LLM:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _ids(self, prompt: str | Sequence[int]) -> list[int]:
        if isinstance(prompt, str):
            prompt = self.tokenizer.encode(prompt, bos=self.tokenizer.adds_bos)
        ids = self.model.ids(prompt)
        opening = self.tokenizer.bos_id if self.tokenizer.bos_id is not None else self.model.bos_id
        if not ids and opening is not None:
            ids = self.model.ids([opening])
        if not ids:
            raise InputError("the prompt is empty, and the model has no token that opens a text")
        return ids

    def _fitted(self, ids: list[int], max_new_tokens: int, overflow: Overflow) -> list[int]:
        context = self.model.context
        if max_new_tokens < 1:
            raise InputError(f"max_new_tokens must be at least 1, not {max_new_tokens}")
        if overflow not in get_args(Overflow):
            raise InputError(f'overflow must be "error" or "truncate", not {overflow!r}')
        if not context or len(ids) <= context:
            return ids
        if overflow == "error":
            raise InputError(
                f"the prompt has {len(ids)} tokens, the context holds {context}; shorten it, or drop "
                'the oldest with overflow="truncate" (--overflow truncate)'
            )
        kept = max(1, context - max_new_tokens)
        opening = ids[:1] if ids[0] == self.tokenizer.bos_id and kept > 1 else []
        return opening + ids[len(ids) - kept + len(opening) :]

    def _generate(
        self,
        ids: list[int],
        dropped: int,
        max_new_tokens: int,
        sampling: Sampling,
        scanner: StopScanner,
        stop_ids: frozenset[int],
        matcher: Matcher | None,
        resident: bool | None,
    ) -> Generator[Piece, None, None]:
        lease = self._pool.lease(ids)
        model = lease.model
        reused = model.resume(ids, lease.user)
        statistics = self.statistics = Statistics(len(ids), reused, dropped)
        sampler = model.sampler(sampling, masked=matcher is not None)
        sampler.remember(ids)
        counters = LoopCounters()
        stream = self.tokenizer.stream()
        drawn: list[int] = []
        started = time.perf_counter()
        steps = generate_step(
            model,
            sampler,
            ids[reused:],
            max_new_tokens,
            resident=resident,
            counters=counters,
            user=lease.user,
            matcher=matcher,
        )
        try:
            for step in steps:
                now = time.perf_counter()
                if not drawn:
                    statistics.prompt_seconds = now - started
                statistics.decode_seconds = now - started - statistics.prompt_seconds
                drawn.append(step.token)
                statistics.new_tokens = len(drawn)
                if step.token in stop_ids:
                    statistics.finish_reason = "stop"
                    break
                text = scanner.push(stream.push(step.token))
                yield Piece(step.token, text, step.logprob, step.top)
                if scanner.is_stopped:
                    statistics.finish_reason = "stop"
                    break
            else:
                if matcher and matcher.is_finished:
                    statistics.finish_reason = "stop"
                else:
                    full = len(drawn) < max_new_tokens
                    statistics.finish_reason = "context" if full else "length"
            rest = "" if scanner.is_stopped else scanner.push(stream.finish()) + scanner.finish()
            if rest:
                yield Piece(drawn[-1], rest, 0.0)
        finally:
            steps.close()  # ends the loop, and what is under way
            statistics.stalls = counters.stalls
            sampler.close()
            lease.close()


def _recommended(folder: Path) -> Sampling:
    try:
        return Sampling(**read_sampling(folder))
    except InputError as error:
        raise FormatError(f"{folder / GENERATION}: {error}") from None
