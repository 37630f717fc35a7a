"""CompletionWriter: the parts of answers -> OpenAI's chat completions and completions.

A choice makes its part of each chunk, the writer adds what all chunks share. `alternatives` is the number of
tokens whose log-probabilities are reported at each place; None: no log-probabilities.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, TypeAlias

import pteron
from pteron.llm import Piece, Tokenizer
from pteron.serving.http.answers import Usage
from pteron.serving.http.errors import ApiError
from pteron.serving.http.generation import new_id, now
from pteron.serving.http.parts import CallArguments, CallBegin, End, Part, Text, Thought
from pteron.serving.http.schema import StreamOptions
from pteron.serving.http.sse import DONE, encode_event

_LEAST = -9999.0  # OpenAI's log-probability of a token that is impossible; JSON has no infinity


class ChatChoice:
    """One answer: its text, its tool calls, its log-probabilities."""

    def __init__(self, tokenizer: Tokenizer, alternatives: int | None) -> None:
        self._tokenizer = tokenizer
        self._alternatives = alternatives
        self._content, self._reasoning = "", ""
        self._calls: list[dict[str, Any]] = []
        self._logprobs: list[dict[str, Any]] = []
        self._reason: str | None = None

    def opening(self) -> Iterator[dict[str, Any]]:
        """The fields of chunks before the first part."""
        yield {"delta": {"role": "assistant", "content": ""}, "logprobs": None}

    def add(self, part: Part) -> Iterator[dict[str, Any]]:
        """The fields of the chunks of the next part."""
        match part:
            case Text(text, piece):
                self._content += text
                entries = self._entries(piece)
                yield {"delta": {"content": text}, "logprobs": self._logprobs_field(entries)}
            case Thought(text):  # clients differ in the name
                self._reasoning += text
                yield {"delta": {"reasoning_content": text, "reasoning": text}, "logprobs": None}
            case CallBegin(id, name):
                index = len(self._calls)
                call = {"id": id, "type": "function", "function": {"name": name, "arguments": ""}}
                self._calls.append(call)
                named = {**call, "index": index, "function": {"name": name, "arguments": ""}}
                yield {"delta": {"tool_calls": [named]}, "logprobs": None}
            case CallArguments(text):
                self._calls[-1]["function"]["arguments"] += text
                more = {"index": len(self._calls) - 1, "function": {"arguments": text}}
                yield {"delta": {"tool_calls": [more]}, "logprobs": None}
            case End(reason):
                self._reason = reason
                yield {"delta": {}, "logprobs": None, "finish_reason": reason}

    def body(self) -> dict[str, Any]:
        """The whole answer."""
        message: dict[str, Any] = {"role": "assistant", "content": self._content, "refusal": None}
        if self._reasoning:
            message |= {"reasoning_content": self._reasoning, "reasoning": self._reasoning}
        if self._calls:
            message["content"] = self._content.strip() or None
            message["tool_calls"] = self._calls
        logprobs = self._logprobs_field(self._logprobs)
        return {"message": message, "logprobs": logprobs, "finish_reason": self._reason}

    def _logprobs_field(self, entries: list[dict[str, Any]]) -> dict[str, Any] | None:
        return None if self._alternatives is None else {"content": entries, "refusal": None}

    def _entries(self, piece: Piece | None) -> list[dict[str, Any]]:
        if self._alternatives is None or piece is None or not piece.top:
            return []
        entries = logprob_entries(self._tokenizer, piece, self._alternatives)
        self._logprobs += entries
        return entries


class CompletionChoice:
    """One answer: its text and its log-probabilities, which are parallel lists."""

    def __init__(self, tokenizer: Tokenizer, alternatives: int | None) -> None:
        self._tokenizer = tokenizer
        self._alternatives = alternatives
        self._offset = 0  # of the next token, in characters of the tokens before
        self._content = ""
        self._logprobs = None if alternatives is None else _empty_lists()
        self._reason: str | None = None

    def opening(self) -> Iterator[dict[str, Any]]:
        yield from ()

    def add(self, part: Part) -> Iterator[dict[str, Any]]:
        if isinstance(part, End):
            self._reason = part.reason
            yield {"text": "", "logprobs": None, "finish_reason": part.reason}
        elif isinstance(part, Text):
            self._content += part.text
            yield {"text": part.text, "logprobs": self._add_logprobs(part.piece)}

    def body(self) -> dict[str, Any]:
        return {"text": self._content, "logprobs": self._logprobs, "finish_reason": self._reason}

    def _add_logprobs(self, piece: Piece | None) -> dict[str, list[Any]] | None:
        """The lists of this piece alone."""
        if self._logprobs is None:
            return None
        added = _empty_lists()
        if piece is not None and piece.top:
            token = _token_text(self._tokenizer, piece.token)
            top: dict[str, float] = {}
            for other, logprob in piece.top[: self._alternatives]:  # of equal texts the most likely is kept
                top.setdefault(_token_text(self._tokenizer, other), max(_LEAST, logprob))
            values = (token, max(_LEAST, piece.logprob), top if self._alternatives else None, self._offset)
            for name, value in zip(added, values, strict=True):
                added[name].append(value)
                self._logprobs[name].append(value)
            self._offset += len(token)
        return added


Choice: TypeAlias = ChatChoice | CompletionChoice


class CompletionWriter:
    """`kinds` are the prefix of the response's id, and OpenAI's names of a whole response and of a chunk."""

    media_type = "text/event-stream"

    def __init__(
        self,
        model: str | None,
        choices: Sequence[Choice],
        kinds: tuple[str, str, str],
        options: StreamOptions | None,
    ) -> None:
        prefix, self._kind, self._chunk_kind = kinds
        self._choices = choices
        self._with_usage = bool(options and options.include_usage)
        self._head = {
            "id": new_id(f"{prefix}-"),
            "created": now(),
            "model": model,
            "system_fingerprint": f"pteron-{pteron.__version__}",
        }

    def start(self, usage: Usage) -> Iterator[bytes]:
        for index, choice in enumerate(self._choices):
            yield from (self._event(index, fields) for fields in choice.opening())

    def write(self, index: int, part: Part) -> Iterator[bytes]:
        return (self._event(index, fields) for fields in self._choices[index].add(part))

    def end(self, usage: Usage) -> Iterator[bytes]:
        if self._with_usage:
            yield encode_event(self._chunk(usage=_usage(usage)))
        yield DONE

    def fail(self, error: ApiError) -> Iterator[bytes]:
        yield encode_event(error.body)
        yield DONE

    def body(self, usage: Usage) -> dict[str, Any]:
        choices = [{"index": index, **choice.body()} for index, choice in enumerate(self._choices)]
        return {**self._head, "object": self._kind, "choices": choices, "usage": _usage(usage)}

    def _event(self, index: int, fields: dict[str, Any]) -> bytes:
        chunk = self._chunk({"index": index, "finish_reason": None, **fields})
        return encode_event(chunk | ({"usage": None} if self._with_usage else {}))

    def _chunk(self, *choices: dict[str, Any], **fields: Any) -> dict[str, Any]:
        return {**self._head, "object": self._chunk_kind, "choices": list(choices), **fields}


def logprob_entries(tokenizer: Tokenizer, piece: Piece, alternatives: int) -> list[dict[str, Any]]:
    """The log-probabilities of a token and of its alternatives, in OpenAI's format."""

    def entry(token: int, logprob: float) -> dict[str, Any]:
        data = tokenizer.token_bytes(token)
        found = {"token": _token_text(tokenizer, token), "logprob": max(_LEAST, logprob)}
        return {**found, "bytes": list(data) if data else None}

    top = [entry(*pair) for pair in piece.top[:alternatives]]
    return [{**entry(piece.token, piece.logprob), "top_logprobs": top}]


def _usage(usage: Usage) -> dict[str, Any]:
    return {
        "prompt_tokens": usage.prompt,
        "completion_tokens": usage.new,
        "total_tokens": usage.prompt + usage.new,
        "prompt_tokens_details": {"cached_tokens": usage.reused},
        "completion_tokens_details": {"reasoning_tokens": usage.reasoning},
    }


def _token_text(tokenizer: Tokenizer, token: int) -> str:
    """The text of a token; the name of a control token, which has no text."""
    data = tokenizer.token_bytes(token)
    return data.decode("utf-8", "replace") if data else tokenizer.token_text(token)


def _empty_lists() -> dict[str, list[Any]]:
    return {"tokens": [], "token_logprobs": [], "top_logprobs": [], "text_offset": []}
