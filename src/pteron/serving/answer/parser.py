"""AnswerParser: the pieces of one answer -> its reasoning, text and tool calls, as they become certain."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Any

from pteron.llm import Piece, Tokenizer
from pteron.serving.answer.format import HARMONY, TAG, AnswerFormat, Reasoning
from pteron.serving.answer.parts import CallArguments, CallBegin, End, Part, Text, Thought, partial_tag
from pteron.serving.answer.tool_calls import HarmonyParser, ToolCallParser, new_call_id

_HARMONY_TAGS = (*HARMONY, "<|start|>", "<|end|>", "<|call|>", "<|return|>", "<|constrain|>")


class AnswerParser:
    """By default all of an answer is text. `names` are the tools that it may call, perhaps with the schemas
    of their parameters. `is_thinking`: the prompt ends inside reasoning. `is_call`: a grammar makes the whole
    answer a call. `controls` are the control tokens that belong to the format, by id: they have no text of
    their own. With `one_call` further calls are dropped."""

    def __init__(
        self,
        format: AnswerFormat | None = None,
        names: Mapping[str, Mapping[str, Any] | None] | Collection[str] = (),
        *,
        controls: Mapping[int, str] | None = None,
        is_thinking: bool = False,
        is_call: bool = False,
        one_call: bool = False,
    ) -> None:
        format = format or AnswerFormat()
        self._controls = controls or {}
        self._harmony = HarmonyParser(names) if format.is_harmony and not is_call else None
        reasoning = None if format.is_harmony or is_call else format.reasoning
        self._thinking = _ReasoningSplitter(reasoning, is_thinking) if reasoning else None
        calls = format.calls if names and not self._harmony else None
        self._tools = ToolCallParser(names, calls, is_call=is_call) if calls else None
        self._calls_max = 1 if one_call else None
        self._calls = 0
        self.reasoning_tokens = 0

    def add(self, piece: Piece) -> Iterator[Part]:
        """The parts that the next piece completes."""
        text = piece.text + self._controls.get(piece.token, "")
        parts = list(self._split(text))
        is_thought = any(isinstance(part, Thought) for part in parts)
        self.reasoning_tokens += is_thought
        if piece.top and not is_thought:  # its log-probability goes with the text that it completes
            at = next((at for at, part in enumerate(parts) if isinstance(part, Text)), None)
            if at is None:
                parts.insert(0, Text("", piece))
            else:
                parts[at] = Text(parts[at].text, piece)  # type: ignore[union-attr]  # it is a Text
        return self._bounded(parts)

    def end(self, reason: str, stop: str) -> Iterator[Part]:
        """The last parts of an answer."""
        parts: list[Part] = []
        if self._thinking:
            parts += self._call_parts(self._thinking.finish())
        parts += self._tools.finish() if self._tools else []
        if self._harmony and (text := self._harmony.finish()):
            parts.append(Text(text))
        yield from self._bounded(parts)
        yield End("tool_calls" if self._calls and reason == "stop" else reason, stop)

    def _split(self, text: str) -> Iterator[Part]:
        if self._harmony:
            for kind, found in self._harmony.push(text):
                if kind == "call":
                    yield CallBegin(new_call_id(), found)
                else:
                    yield {"thought": Thought, "text": Text, "arguments": CallArguments}[kind](found)
        elif self._thinking:
            yield from self._call_parts(self._thinking.push(text))
        else:
            yield from self._call_parts([Text(text)] if text else [])

    def _call_parts(self, parts: list[Text | Thought]) -> Iterator[Part]:
        """Look for calls in the text of parts."""
        for part in parts:
            if self._tools and isinstance(part, Text):
                yield from self._tools.push(part.text)
            else:
                yield part

    def _bounded(self, parts: list[Part]) -> Iterator[Part]:
        for part in parts:
            self._calls += isinstance(part, CallBegin)
            is_call = isinstance(part, (CallBegin, CallArguments))
            if not is_call or self._calls_max is None or self._calls <= self._calls_max:
                yield part


class _ReasoningSplitter:
    """Splits reasoning, which is at the beginning of an answer, from the text after it."""

    def __init__(self, reasoning: Reasoning, is_thinking: bool) -> None:
        self._tags = reasoning
        self._held = ""
        self._has_thought = False
        self._state = "thought" if is_thinking else "start"  # then "gap", white space after it, and "text"

    def push(self, text: str) -> list[Text | Thought]:
        self._held += text
        found: list[Text | Thought] = []
        if self._state == "start":
            held = self._held.lstrip()
            if held.startswith(self._tags.opening):
                self._held, self._state = held[len(self._tags.opening) :], "thought"
            elif not self._tags.opening.startswith(held):
                self._state = "text"
        if self._state == "thought":
            before, closed, after = self._held.partition(self._tags.closing)
            if not self._has_thought:
                before = before.lstrip("\n")
            size = len(before) - (0 if closed else partial_tag(before, self._tags.closing))
            size = len(before[:size].rstrip("\n"))  # lines before the closing tag belong to it
            if size:
                self._has_thought = True
                found.append(Thought(before[:size]))
            self._held = after if closed else before[size:]
            self._state = "gap" if closed else "thought"
        if self._state == "gap":
            self._held = self._held.lstrip()
            self._state = "text" if self._held else "gap"
        if self._state == "text" and self._held:
            found.append(Text(self._held))
            self._held = ""
        return found

    def finish(self) -> list[Text | Thought]:
        held, self._held = self._held, ""
        if not held or self._state == "gap":
            return []
        return [Thought(held) if self._state == "thought" else Text(held)]


def control_tags(format: AnswerFormat, tokenizer: Tokenizer) -> dict[int, str]:
    """The control tokens of a vocabulary that a format's tags are, by id."""
    calls, reasoning = format.calls, format.reasoning
    texts = [calls.prefix, calls.separator, calls.closing, calls.section_end] if calls else []
    texts += [calls.parameter, calls.key_end, calls.value_end] if calls else []
    texts += [reasoning.opening, reasoning.closing] if reasoning else []
    texts += [*_HARMONY_TAGS] if format.is_harmony else ["<|python_tag|>"]
    tags = {tag for text in texts for tag in TAG.findall(text)}
    ids = {tag: tokenizer.token_id(tag) for tag in tags}
    return {id: tag for tag, id in ids.items() if id is not None and not tokenizer.token_bytes(id)}
