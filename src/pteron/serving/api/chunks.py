"""The answers of a generation -> OpenAI's chat completions and completions, with log-probabilities."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from typing import Any

import pteron
from pteron.llm import Piece, Tokenizer
from pteron.serving.answer.blocks import AnswerBlocks, Block, Change, Delta, Open
from pteron.serving.answer.generation import Generation, new_id, now
from pteron.serving.answer.parts import End
from pteron.serving.api.schema import StreamOptions
from pteron.serving.http.errors import ApiError
from pteron.serving.http.sse import DONE, encode_event

_LEAST = -9999.0  # OpenAI's log-probability of a token that is impossible; JSON has no infinity


class _ChunkWriter(ABC):
    """What both have in common: a chunk has fields of a choice, which are made from a change. `alternatives`
    is the number of tokens whose log-probabilities are reported at each place; None: no log-probabilities."""

    media_type = "text/event-stream"
    prefix: str  # of the response's id
    kind: str  # OpenAI's names of a whole response, and of a chunk
    chunk_kind: str

    def __init__(
        self, generation: Generation, alternatives: int | None, options: StreamOptions | None
    ) -> None:
        self._generation = generation
        self._tokenizer = generation.model.llm.tokenizer
        self._alternatives = alternatives
        self._with_usage = bool(options and options.include_usage)
        self._head = {
            "id": new_id(f"{self.prefix}-"),
            "created": now(),
            "model": generation.record.model,
            "system_fingerprint": f"pteron-{pteron.__version__}",
        }

    def start(self) -> Iterator[bytes]:
        yield from ()

    def write(self, index: int, change: Change) -> Iterator[bytes]:
        if (fields := self._fields(index, change)) is not None:
            yield self._event(index, fields)

    def end(self) -> Iterator[bytes]:
        if self._with_usage:
            yield encode_event(self._chunk(usage=self._usage))
        yield DONE

    def fail(self, error: ApiError) -> Iterator[bytes]:
        yield encode_event(error.body)
        yield DONE

    def body(self) -> dict[str, Any]:
        choices = [
            {"index": index, **self._choice(answer), "finish_reason": answer.end.reason}
            for index, answer in enumerate(self._generation.answers)
        ]
        return {**self._head, "object": self.kind, "choices": choices, "usage": self._usage}

    @abstractmethod
    def _fields(self, index: int, change: Change) -> dict[str, Any] | None:
        """The fields of a change's chunk; None: it has none."""

    @abstractmethod
    def _choice(self, answer: AnswerBlocks) -> dict[str, Any]:
        """A whole answer."""

    def _event(self, index: int, fields: dict[str, Any]) -> bytes:
        chunk = self._chunk({"index": index, "finish_reason": None, **fields})
        return encode_event(chunk | ({"usage": None} if self._with_usage else {}))

    def _chunk(self, *choices: dict[str, Any], **fields: Any) -> dict[str, Any]:
        return {**self._head, "object": self.chunk_kind, "choices": list(choices), **fields}

    @property
    def _usage(self) -> dict[str, Any]:
        counts = self._generation
        return {
            "prompt_tokens": counts.prompt_tokens,
            "completion_tokens": counts.new_tokens,
            "total_tokens": counts.prompt_tokens + counts.new_tokens,
            "prompt_tokens_details": {"cached_tokens": counts.reused_tokens},
            "completion_tokens_details": {"reasoning_tokens": counts.reasoning_tokens},
        }


class ChatWriter(_ChunkWriter):
    prefix, kind, chunk_kind = "chatcmpl", "chat.completion", "chat.completion.chunk"

    def start(self) -> Iterator[bytes]:
        for index in range(len(self._generation.answers)):
            yield self._event(index, {"delta": {"role": "assistant", "content": ""}, "logprobs": None})

    def _fields(self, index: int, change: Change) -> dict[str, Any] | None:
        match change:
            case Open(Block("call") as call):
                begun = {**_call(call), "index": self._call_index(index)}
                return {"delta": {"tool_calls": [begun]}, "logprobs": None}
            case Delta(Block("call"), text):
                more = {"index": self._call_index(index), "function": {"arguments": text}}
                return {"delta": {"tool_calls": [more]}, "logprobs": None}
            case Delta(Block("thought"), text):  # clients differ in the name
                return {"delta": {"reasoning_content": text, "reasoning": text}, "logprobs": None}
            case Delta(_, text, piece):
                return {"delta": {"content": text}, "logprobs": self._logprobs([piece] if piece else [])}
            case End(reason):
                return {"delta": {}, "logprobs": None, "finish_reason": reason}
        return None

    def _choice(self, answer: AnswerBlocks) -> dict[str, Any]:
        message: dict[str, Any] = {"role": "assistant", "content": answer.joined("text"), "refusal": None}
        if reasoning := answer.joined("thought"):
            message |= {"reasoning_content": reasoning, "reasoning": reasoning}
        if calls := answer.calls:
            message["content"] = message["content"].strip() or None
            message["tool_calls"] = [_call(call) for call in calls]
        return {"message": message, "logprobs": self._logprobs([piece for _, piece in answer.tokens])}

    def _call_index(self, index: int) -> int:
        return len(self._generation.answers[index].calls) - 1

    def _logprobs(self, pieces: Sequence[Piece]) -> dict[str, Any] | None:
        if self._alternatives is None:
            return None
        entries = [logprob_entry(self._tokenizer, piece, self._alternatives) for piece in pieces]
        return {"content": entries, "refusal": None}


class CompletionWriter(_ChunkWriter):
    """Its log-probabilities are parallel lists."""

    prefix, kind, chunk_kind = "cmpl", "text_completion", "text_completion"

    def __init__(
        self, generation: Generation, alternatives: int | None, options: StreamOptions | None
    ) -> None:
        super().__init__(generation, alternatives, options)
        self._offsets = [0] * len(generation.answers)  # of the next token, in characters of those before

    def _fields(self, index: int, change: Change) -> dict[str, Any] | None:
        match change:
            case Delta(_, text, piece):
                found = self._logprobs([piece] if piece else [], self._offsets[index])
                self._offsets[index] += sum(map(len, found["tokens"])) if found else 0
                return {"text": text, "logprobs": found}
            case End(reason):
                return {"text": "", "logprobs": None, "finish_reason": reason}
        return None

    def _choice(self, answer: AnswerBlocks) -> dict[str, Any]:
        return {
            "text": answer.joined("text"),
            "logprobs": self._logprobs([piece for _, piece in answer.tokens]),
        }

    def _logprobs(self, pieces: Sequence[Piece], offset: int = 0) -> dict[str, list[Any]] | None:
        if self._alternatives is None:
            return None
        return logprob_lists(self._tokenizer, pieces, self._alternatives, offset)


def logprob_entry(tokenizer: Tokenizer, piece: Piece, alternatives: int) -> dict[str, Any]:
    """The log-probabilities of a token and of its alternatives, in OpenAI's format for chats."""

    def entry(token: int, logprob: float) -> dict[str, Any]:
        data = tokenizer.token_bytes(token)
        found = {"token": _token_text(tokenizer, token), "logprob": max(_LEAST, logprob)}
        return {**found, "bytes": list(data) if data else None}

    top = [entry(*pair) for pair in piece.top[:alternatives]]
    return {**entry(piece.token, piece.logprob), "top_logprobs": top}


def logprob_lists(
    tokenizer: Tokenizer, pieces: Sequence[Piece], alternatives: int, offset: int = 0
) -> dict[str, list[Any]]:
    """The same of several tokens, in OpenAI's format for completions. `offset` is that of the first."""
    found: dict[str, list[Any]] = {"tokens": [], "token_logprobs": [], "top_logprobs": [], "text_offset": []}
    for piece in pieces:
        token = _token_text(tokenizer, piece.token)
        top: dict[str, float] = {}
        for other, logprob in piece.top[:alternatives]:  # of equal texts the most likely is kept
            top.setdefault(_token_text(tokenizer, other), max(_LEAST, logprob))
        values = (token, max(_LEAST, piece.logprob), top if alternatives else None, offset)
        for name, value in zip(found, values, strict=True):
            found[name].append(value)
        offset += len(token)
    return found


def _call(call: Block) -> dict[str, Any]:
    function = {"name": call.name, "arguments": call.text}
    return {"id": call.call_id, "type": "function", "function": function}


def _token_text(tokenizer: Tokenizer, token: int) -> str:
    """The text of a token; the name of a control token, which has no text."""
    data = tokenizer.token_bytes(token)
    return data.decode("utf-8", "replace") if data else tokenizer.token_text(token)
