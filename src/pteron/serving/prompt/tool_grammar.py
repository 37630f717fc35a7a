"""Grammars of tool calls, in Lark's notation: an answer that must be a call, and one that may contain calls.

The second one is lazy: text is free up to the tag that begins a call in the model's own form, and from there
on the call is well-formed. White space between the parts of a call may differ from the template's.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

from pteron.llm.grammar.grammar import WHITESPACE
from pteron.llm.grammar.limits import schema_text
from pteron.serving.answer.format import AnswerFormat, CallFormat, Reasoning

_SPACES = {"x-guidance": {"whitespace_pattern": WHITESPACE}}
_TERMINALS = r"""TEXT: /(.|\n)*/
W: /[ \n\t]{1,16}/
KEY: /[A-Za-z0-9_.-]{1,64}/
ID: /"[A-Za-z0-9_-]{1,64}"/"""
_HARMONY = ("<|channel|>", "<|message|>", "<|start|>", "<|end|>", "<|constrain|>")


def forced_grammar(
    tools: Mapping[str, Mapping[str, Any] | None],
    format: CallFormat,
    *,
    parallel: bool,
    controls: Mapping[int, str] | None = None,
) -> str:
    """An answer that is a call, or several with `parallel`. It begins after the text before the first call.
    `tools` maps each name to the schema of its parameters; `controls` are tags that are control tokens."""
    rules = _Rules(tools, format, controls or {})
    rules.add("start", rules.calls(parallel, is_open=True))
    return rules.text()


def lazy_grammar(
    tools: Mapping[str, Mapping[str, Any] | None],
    format: AnswerFormat,
    *,
    parallel: bool,
    is_thinking: bool = False,
    controls: Mapping[int, str] | None = None,
) -> str | None:
    """An answer of reasoning, text and calls. `is_thinking`: it begins inside reasoning. None: there is no
    grammar for such answers."""
    assert format.calls is not None
    rules = _Rules(tools, format.calls, controls or {})
    if format.is_harmony:
        if not set(_HARMONY) <= set(rules.controls):
            return None
        rules.add_harmony(parallel)
        return rules.text()
    rules.add_body(parallel, format.reasoning if not is_thinking else None)
    if format.reasoning is None or not format.reasoning.closing:
        rules.add("start", "body")
    else:
        rules.add_thought(format.reasoning, is_thinking)
    return rules.text()


class _Rules:
    def __init__(
        self,
        tools: Mapping[str, Mapping[str, Any] | None],
        format: CallFormat,
        controls: Mapping[int, str],
    ) -> None:
        self.controls = {tag: f"<[{id}]>" for id, tag in controls.items()}
        self._format = format
        self._tools = {name: dict(schema or {"type": "object"}) for name, schema in tools.items()}
        self._rules: dict[str, str] = {}
        self._json = 0  # rules of JSON so far

    def add(self, name: str, body: str) -> None:
        self._rules[name] = body

    def text(self) -> str:
        return "\n".join([*(f"{name}: {body}" for name, body in self._rules.items()), _TERMINALS])

    def literal(self, text: str) -> str:
        """A text as a sequence of symbols. Tags may be control tokens, and white space is free."""
        tags = "|".join(map(re.escape, sorted(self.controls, key=len, reverse=True)))
        parts = re.split(rf"({tags}|\s+)" if tags else r"(\s+)", text)
        symbols = [
            self.controls.get(part) or ("W?" if part.isspace() else json.dumps(part, ensure_ascii=False))
            for part in parts
            if part
        ]
        return " ".join(symbols)

    def until(self, name: str, tag: str, before: str = "TEXT") -> str:
        """A symbol for text that ends with the first `tag`."""
        if tag in self.controls:
            return f"{before} {self.controls[tag]}"
        self.add(f"{name}[lazy]", f"{before} {json.dumps(tag, ensure_ascii=False)}")
        return name

    def json(self, schema: Mapping[str, Any]) -> str:
        """A symbol for JSON that fits a schema."""
        name = f"json_{self._json}"
        self._json += 1
        self.add(name, f"%json {schema_text(_SPACES | dict(schema))}")
        return name

    def calls(self, parallel: bool, *, is_open: bool) -> str:
        """One call, or several with the tags between them. With `is_open` the answer begins with the first
        call, after its opening, and may end without the last one's closing."""
        format = self._format
        one = f"({' | '.join(self._call_rules())})"
        closing, section_end = format.closing.strip(), format.section_end.strip()
        if format.style == "list":
            more = f' (W? "," W? {one})*' if parallel else ""
            found = f'"[" W? {one}{more} W? "]"'
        else:
            between = self.literal(f"{closing} {format.opening.strip()}".strip())
            has_more = parallel and format.tags and (format.section or is_open)
            found = one + (f" (W? {between} W? {one})*" if has_more else "")
        end = " W? ".join(self.literal(part) for part in (closing, section_end) if part)
        if end:
            found += f" (W? {end})?" if is_open and format.style != "xml" else f" W? {end}"
        return found

    def _call_rules(self) -> Iterator[str]:
        """The names of the rules of a call, one for each tool."""
        for index, (name, schema) in enumerate(self._tools.items()):
            self.add(f"call_{index}", self._call(name, schema))
            yield f"call_{index}"

    def _call(self, name: str, schema: dict[str, Any]) -> str:
        format = self._format
        if format.style == "xml":
            return f"{self.literal(name + format.separator.strip())} W? {self._parameters(schema)}"
        if format.style == "named":
            return f"{self.literal(name + format.separator)} {self.json(schema)}"
        quoted = self.literal(json.dumps(name))
        return f'"{{" W? "\\"name\\"" W? ":" W? {quoted} {self._arguments(schema)}'

    def _arguments(self, schema: dict[str, Any]) -> str:
        """What follows the name in the JSON of a call."""
        key = self.literal(json.dumps(self._format.arguments))
        # Mistral's models write an id after them.
        id = r' (W? "," W? "\"id\"" W? ":" W? ID)?' if self._format.style == "list" else ""
        return f'W? "," W? {key} W? ":" W? {self.json(schema)}{id} W? "}}"'

    def _parameters(self, schema: dict[str, Any]) -> str:
        """The parameters of a call in XML: those of the schema in their order, or any."""
        format = self._format
        end = format.value_end.strip()
        any_value = self.until("value", end)
        properties = schema.get("properties")
        if not isinstance(properties, dict) or not properties:
            opening, key_end = self.literal(format.parameter), self.literal(format.key_end.strip())
            return f"({opening} KEY {key_end} {any_value} W?)*"
        required = schema.get("required")
        shared: dict[str, Any] = {key: schema[key] for key in ("$defs", "definitions") if key in schema}
        found = []
        for key, kind in properties.items():
            head = self.literal(format.parameter + str(key) + format.key_end.strip())
            kind = kind if isinstance(kind, dict) else {}
            choices = kind.get("enum")
            if isinstance(choices, list) and choices and all(isinstance(item, str) for item in choices):
                words = " | ".join(json.dumps(item, ensure_ascii=False) for item in choices)
                value = f"W? ({words}) W? {self.literal(end)}"
            elif is_text(kind):
                value = any_value
            else:
                value = f"W? {self.json(shared | kind)} W? {self.literal(end)}"
            one = f"{head} {value} W?"
            found.append(one if isinstance(required, list) and key in required else f"({one})?")
        return " ".join(found)

    def add_body(self, parallel: bool, reasoning: Reasoning | None) -> None:
        """Text with calls. Its beginning is no reasoning."""
        format = self._format
        if not format.tags:
            self._add_bare_body()
            return
        tag = format.tags[0]
        rest = self.literal(format.prefix.partition(tag)[2].strip())
        calls = (
            f"W? {rest} W? {self.calls(parallel, is_open=False)}"
            if rest
            else f"W? {self.calls(parallel, is_open=False)}"
        )
        before = "TEXT"
        if reasoning is not None and reasoning.opening and reasoning.opening not in self.controls:
            before = "BODY"
            opening = _regex(reasoning.opening)
            self.add(before, rf"/(.|\n)*/ & ~/[ \n\t]*{opening}(.|\n)*/")
        self.add("calls", calls)
        first = self.until("first", tag, before)
        if not parallel:
            self.add("body", f"TEXT | {first} calls")
            return
        self.add("more", f"{self.until('next', tag)} calls")
        self.add("body", f"TEXT | {first} calls more* TEXT")

    def _add_bare_body(self) -> None:
        """Calls without tags are all of an answer: it is one if it begins with a tool's name."""
        starts = []
        for index, (name, schema) in enumerate(self._tools.items()):
            head = rf'[ \n\t]*\{{[ \n\t]*"name"[ \n\t]*:[ \n\t]*"{_regex(name)}"'
            self.add(f"head_{index}[lazy]", f"/{head}/")
            self.add(f"call_{index}", f"head_{index} {self._arguments(schema)}")
            starts.append(f"call_{index}")
        prefixes = [symbol for tag, symbol in self.controls.items() if tag == "<|python_tag|>"]
        start = f"({' | '.join(starts)})"
        self.add("body", " | ".join(["TEXT", start, *(f"{prefix} {start}" for prefix in prefixes)]))

    def add_thought(self, reasoning: Reasoning, is_thinking: bool) -> None:
        """The reasoning before the body. It may lack its end, if the answer ends in it."""
        opening, closing = self.controls.get(reasoning.opening), reasoning.closing
        if is_thinking:
            self.add("start", f"TEXT | {self.until('thought', closing)} body")
        elif opening is not None:
            self.add(
                "start", f"W? {opening} {self.until('thought', closing)} body | W? {opening} TEXT | body"
            )
        else:
            self.add("OPENING", rf"/[ \n\t]*{_regex(reasoning.opening)}(.|\n)*/")
            self.add("start", f"{self.until('thought', closing, 'OPENING')} body | body")

    def add_harmony(self, parallel: bool) -> None:
        """Messages of gpt-oss; the prompt has begun the first one."""
        tag = self.controls
        heads = []
        for index, (name, schema) in enumerate(self._tools.items()):
            name_ = json.dumps(f" to=functions.{name}")
            self.add(
                f"call_{index}",
                f"({tag['<|channel|>']} CHANNEL {name_} | {name_} {tag['<|channel|>']} CHANNEL) "
                f'(W? {tag["<|constrain|>"]}? ("json" | "code"))? {tag["<|message|>"]} {self.json(schema)}',
            )
            heads.append(f"call_{index}")
        self.add("CHANNEL", "/analysis|commentary|final/")
        self.add("plain", f"{tag['<|channel|>']} CHANNEL {tag['<|message|>']} TEXT")
        self.add("call", " | ".join(heads))
        self.add("then", f'{tag["<|end|>"]} {tag["<|start|>"]} "assistant"')
        calls = "call (then call)*" if parallel else "call"
        self.add("start", f"(plain then)* (plain | {calls})")


def is_text(schema: Mapping[str, Any]) -> bool:
    """Whether a parameter may be any text: a string, or a value that the schema does not describe."""
    kind = schema.get("type")
    if isinstance(kind, list):
        return "string" in kind
    return kind == "string" or not schema.keys() & {
        "type",
        "$ref",
        "anyOf",
        "oneOf",
        "allOf",
        "enum",
        "const",
    }


def _regex(text: str) -> str:
    """A text in a regular expression of Lark's notation."""
    return re.escape(text).replace("/", r"\/")
