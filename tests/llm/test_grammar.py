"""Grammars without a model: what they allow, when they end, and what is refused before it costs time."""

from __future__ import annotations

import json
import sys
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from byte_tokenizer import FIRST_BYTE, ByteTokenizer

import pteron.llm.grammar.grammar as compiling
from pteron.errors import InputError, PteronError
from pteron.llm import Grammar, Matcher, Tokenizer, load_tokenizer
from pteron.llm.grammar.vocabulary import GRAMMARS_MAX, vocabulary_of

pytest.importorskip("llguidance", reason="needs the extra `serve`")
STORIES = Path(__file__).parents[2] / "src" / "pteron" / "models" / "stories15m"
EOS = 2


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return ByteTokenizer()


@pytest.fixture(scope="module")
def stories() -> Tokenizer:
    return load_tokenizer(STORIES)


def allowed(matcher: Matcher) -> set[int]:
    bits = np.unpackbits(matcher.mask().view(np.uint8), bitorder="little")
    return {int(token) for token in np.flatnonzero(bits)}


def follow(grammar: Grammar, text: str) -> Matcher:
    matcher = grammar.matcher()
    for byte in text.encode():
        assert FIRST_BYTE + byte in allowed(matcher), text
        matcher.take(FIRST_BYTE + byte)
    return matcher


def takes(grammar: Grammar, text: str) -> bool:
    """Whether the grammar accepts a text."""
    matcher = grammar.matcher()
    for byte in text.encode():
        if matcher.is_finished or FIRST_BYTE + byte not in allowed(matcher):
            return False
        matcher.take(FIRST_BYTE + byte)
    return matcher.may_end


PERSON = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "maxLength": 5},
        "age": {"type": "integer", "minimum": 0, "maximum": 120},
        "kind": {"enum": ["cat", "dog", 7, None]},
        "next": {"$ref": "#/$defs/leaf"},
    },
    "required": ["name", "age", "kind"],
    "additionalProperties": False,
    "$defs": {"leaf": {"type": "array", "items": {"type": "number"}, "minItems": 1, "maxItems": 2}},
}


class TestWhatIsAllowed:
    @pytest.mark.parametrize(
        ("value", "fits"),
        [
            ({"name": "Ada", "age": 36, "kind": "cat"}, True),
            ({"name": "Ada", "age": 120, "kind": None, "next": [1.5]}, True),
            ({"name": "Ada", "age": 0, "kind": 7, "next": [-1e3, 2]}, True),
            ({"name": "Adaaaa", "age": 36, "kind": "cat"}, False),
            ({"name": "Ada", "age": 121, "kind": "cat"}, False),
            ({"name": "Ada", "age": 1.5, "kind": "cat"}, False),
            ({"name": "Ada", "age": 36, "kind": "cow"}, False),
            ({"name": "Ada", "age": 36}, False),
            ({"name": "Ada", "age": 36, "kind": "cat", "next": []}, False),
            ({"name": "Ada", "age": 36, "kind": "cat", "next": [1, 2, 3]}, False),
            ({"name": "Ada", "age": 36, "kind": "cat", "more": 1}, False),
        ],
    )
    def test_a_schema(self, value: Any, fits: bool, tokenizer: Tokenizer) -> None:
        forms: tuple[dict[str, Any], str] = (PERSON, json.dumps(PERSON))
        for schema in forms:
            grammar = Grammar.json_schema(tokenizer, schema)
            for text in (
                json.dumps(value),
                json.dumps(value, indent=2),
                json.dumps(value, separators=(",", ":")),
            ):
                assert takes(grammar, text) == fits

    def test_a_schema_that_refers_to_itself(self, tokenizer: Tokenizer) -> None:
        tree = {
            "$defs": {
                "node": {
                    "type": "object",
                    "properties": {"in": {"type": "array", "items": {"$ref": "#/$defs/node"}}},
                    "additionalProperties": False,
                    "required": ["in"],
                }
            },
            "$ref": "#/$defs/node",
        }
        grammar = Grammar.json_schema(tokenizer, tree)
        assert takes(grammar, '{"in":[{"in":[]},{"in":[{"in":[]}]}]}')
        assert not takes(grammar, '{"in":[{"in":0}]}')

    def test_any_object(self, tokenizer: Tokenizer) -> None:
        grammar = Grammar.json_object(tokenizer)
        assert takes(grammar, '{"a": [1, {"b": null}], "c": "\\näö"}')
        assert not takes(grammar, "[1]")
        assert not takes(grammar, '{"a": 1')

    def test_rules(self, tokenizer: Tokenizer) -> None:
        grammar = Grammar.lark(tokenizer, 'start: sum\nsum: sum "+" N | N\nN: /[0-9]+/')
        assert takes(grammar, "1+23+4")
        assert not takes(grammar, "1+")

    def test_a_text_may_end_where_the_grammar_does(self, tokenizer: Tokenizer) -> None:
        matcher = follow(Grammar.regex(tokenizer, "ab*"), "")
        assert EOS not in allowed(matcher)
        assert not matcher.may_end
        matcher.take(FIRST_BYTE + ord("a"))
        assert {EOS, FIRST_BYTE + ord("b")} == allowed(matcher)
        assert matcher.may_end
        assert not matcher.is_finished
        matcher.take(EOS)
        assert matcher.is_finished

    def test_a_text_ends_where_nothing_can_follow(self, tokenizer: Tokenizer) -> None:
        matcher = follow(Grammar.regex(tokenizer, "ab"), "ab")
        assert matcher.is_finished
        assert allowed(matcher) == {EOS}

    def test_control_tokens_are_no_text(self, stories: Tokenizer) -> None:
        matcher = Grammar.json_schema(stories, {"type": "string"}).matcher()
        opening = next(token for token in allowed(matcher) if stories.token_bytes(token) == b'"')
        matcher.take(opening)
        assert not allowed(matcher) & {0, *stories.eos_ids, stories.bos_id}

    def test_what_must_follow_is_cut_as_the_model_knows_it(self, stories: Tokenizer) -> None:
        text = "Once upon a time there was a little girl. " * 9
        matcher = Grammar.regex(stories, text.replace(".", r"\.")).matcher()
        found = []
        while not matcher.is_finished:
            (token,) = {token for token in allowed(matcher) if token not in stories.eos_ids}
            matcher.take(token)
            found.append(token)
        data = b"".join(map(stories.token_bytes, found))
        assert data.decode() == text
        assert len(found) < 1.3 * len(stories.encode(text))

    def test_other_tokens_that_end_a_text(self, tokenizer: Tokenizer) -> None:
        matcher = Grammar.regex(tokenizer, "a*", eos_ids=[1, 400]).matcher()
        assert allowed(matcher) >= {1, 400}
        assert EOS not in allowed(matcher)

    def test_a_tokenizer_that_ends_no_text(self) -> None:
        tokenizer: Tokenizer = ByteTokenizer()
        tokenizer.eos_ids = ()
        matcher = follow(Grammar.regex(tokenizer, "ab?"), "a")
        assert {token for token in allowed(matcher) if token < tokenizer.vocab_size} == {
            FIRST_BYTE + ord("b")
        }
        matcher.take(FIRST_BYTE + ord("b"))
        assert matcher.is_finished

    def test_a_token_that_does_not_follow(self, tokenizer: Tokenizer) -> None:
        matcher = Grammar.regex(tokenizer, "ab").matcher()
        with pytest.raises(InputError, match=r"the grammar failed|does not allow token"):
            matcher.take(FIRST_BYTE + ord("x"))


class TestWhatIsRefused:
    @pytest.mark.parametrize(
        ("schema", "message"),
        [
            ("{", "not valid JSON"),
            ("[1]", "must be an object"),
            (5, "must be an object"),
            ({"type": "strin"}, "strin"),
            ({"$ref": "#/nowhere"}, "nowhere"),
            ({"$ref": "http://example.com/x"}, "example.com"),
            ({"type": "object", "propertyNames": {"pattern": "a"}}, "propertyNames"),
            ({"type": "string", "pattern": "(("}, "regex"),
            ({"type": "string", "pattern": "(?=a)b"}, "look-ahead and look-behind, is not supported$"),
            ({"$ref": "#"}, "cannot be used: no text matches it"),
            ({"oneOf": [{"minLength": 1}, {"maxLength": 9}]}, "use anyOf"),
            ({"enum": []}, "nsatisfiable"),
            ({"type": "number", "minimum": float("nan")}, "has a value that JSON does not allow"),
            ({"type": {1, 2}}, "has a value that JSON does not allow"),
        ],
    )
    def test_schemas(self, schema: Any, message: str, tokenizer: Tokenizer) -> None:
        with pytest.raises(InputError, match=message):
            Grammar.json_schema(tokenizer, schema)

    @pytest.mark.parametrize(
        ("pattern", "message"),
        [
            ("((", "unclosed group$"),
            ("(?=a)b", "look-ahead and look-behind, is not supported$"),
            (r"(a)\1", "backreferences are not supported$"),
            (r"[^\s\S]", "no text matches it$"),
            (5, "must be a string"),
            ("a" * 20_000, "bytes"),
            ("\ud800", "lone surrogate"),
        ],
    )
    def test_patterns(self, pattern: Any, message: str, tokenizer: Tokenizer) -> None:
        with pytest.raises(InputError, match=f"regular expression.*{message}"):
            Grammar.regex(tokenizer, pattern)

    @pytest.mark.parametrize("text", ["", "x: y", "start: nothing", "start: (", None, "start: " + "(" * 9000])
    def test_rules(self, text: Any, tokenizer: Tokenizer) -> None:
        with pytest.raises(InputError, match="grammar"):
            Grammar.lark(tokenizer, text)

    def test_no_tokenizer(self) -> None:
        with pytest.raises(InputError, match="needs a Tokenizer"):
            Grammar.json_object("stories15m")  # type: ignore[arg-type]  # what is refused

    def test_a_missing_library(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setitem(sys.modules, "llguidance", None)
        with pytest.raises(PteronError, match=r"pip install .*\[serve\]."):
            Grammar.json_object(ByteTokenizer())


def nested(depth: int) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": "integer"}
    for _ in range(depth):
        schema = {"type": "array", "items": schema}
    return schema


def chained(length: int) -> dict[str, Any]:
    links = {f"a{i}": {"type": "array", "items": {"$ref": f"#/$defs/a{i + 1}"}} for i in range(length)}
    return {"$defs": {**links, f"a{length}": {"type": "integer"}}, "$ref": "#/$defs/a0"}


class TestHostile:
    """Each of these takes llguidance alone minutes, gigabytes, or the process."""

    @pytest.mark.parametrize(
        "schema",
        [
            nested(5000),
            chained(5000),
            {"enum": [f"x{i * 7919}" for i in range(100_000)]},
            {"type": "integer", "multipleOf": 99_999_989},
            {"type": "number", "multipleOf": 1e-9},
            {"allOf": [{"type": "number", "multipleOf": 1e-300}, {"type": "number", "multipleOf": 1e300}]},
            {"allOf": [{"anyOf": [{"properties": {f"k{i}{j}": {}}} for j in range(6)]} for i in range(8)]},
            {"type": "string", "pattern": "(a?){1000}a{1000}", "maxLength": 1000},
        ],
        ids=[
            "nested",
            "chained",
            "enum",
            "multiple",
            "part",
            "apart",
            "product",
            "pattern",
        ],
    )
    def test_schemas(self, schema: Any, stories: Tokenizer) -> None:
        with pytest.raises(InputError):
            Grammar.json_schema(stories, schema)

    def test_a_chain_of_rules(self, stories: Tokenizer) -> None:
        for name in "rR":
            rules = "\n".join(f"{name}{i}: {name}{i + 1}" for i in range(4000))
            with pytest.raises(InputError, match=r"bytes|rules"):
                Grammar.lark(stories, f'start: {name}0\n{rules}\n{name}4000: "a"')

    def test_a_pattern_of_nested_repeats_is_refused(self, stories: Tokenizer) -> None:
        def follow() -> None:
            matcher = Grammar.regex(stories, "((((a{1,100}){1,100}){1,100}){1,100}){1,100}").matcher()
            for _ in range(40):
                matcher.take(min(allowed(matcher) - set(stories.eos_ids)))

        with pytest.raises(InputError, match=r"too many expressions|takes more than"):
            follow()

    def test_a_pattern_of_long_alternatives_is_followed(self, stories: Tokenizer) -> None:
        random = np.random.default_rng(0)
        matcher = Grammar.regex(stories, "(.*a.{500})|(.*b.{501})").matcher()
        for _ in range(40):
            assert not matcher.may_end  # 501 characters at least
            choices = sorted(allowed(matcher))
            assert not set(choices) & set(stories.eos_ids)
            matcher.take(int(random.choice(choices)))

    def test_a_compiler_that_does_not_come_back(
        self, tokenizer: Tokenizer, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        go_on = threading.Event()
        monkeypatch.setattr(compiling, "COMPILE_SECONDS", 0.05)
        monkeypatch.setattr(compiling, "_compilers", threading.BoundedSemaphore(1))
        with pytest.raises(InputError, match=r"the work takes more than 0.05 s to compile"):
            compiling._in_time("the work", go_on.wait)
        with pytest.raises(InputError, match="still compiling"):
            compiling._in_time("the work", int)
        go_on.set()
        monkeypatch.setattr(compiling, "COMPILE_SECONDS", 30)
        assert compiling._in_time("the work", lambda: 5) == 5


class TestForcedText:
    """A text that the grammar forces is given to the model in the tokenizer's own tokens."""

    @pytest.mark.parametrize("leading", [False, True], ids=["", "a space in front"])
    def test_as_the_tokenizer_splits_it(self, leading: bool) -> None:
        tokenizer = WordTokenizer(splits=True, leading=leading)
        assert forced(tokenizer, "the theth") == [b"the", b" ", b"t", b"h", b"e", b"t", b"h"]

    def test_by_the_longest_tokens_where_it_cannot(self) -> None:
        tokenizer = WordTokenizer(splits=False)
        assert forced(tokenizer, "the theth") == [b"the", b" the", b"th"]
        assert forced(tokenizer, "q" * 135) == [b"q" * 60, b"q" * 60, *[b"q"] * 8]  # 128 characters at once

    def test_up_to_a_byte_without_a_token(self) -> None:
        assert forced(WordTokenizer(splits=False, without=ord("x")), "thxth") == [b"th"]


class WordTokenizer(ByteTokenizer):
    """Bytes and a few words. It `splits` text into these bytes and a first word, with a `leading` space as
    SentencePiece adds one; or it answers with another text."""

    WORDS = (b" the", b"th", b"the", b"q" * 60, b"q" * 70)

    def __init__(self, *, splits: bool, leading: bool = False, without: int = 0) -> None:
        self.splits, self.leading, self.without = splits, leading, without

    def token_bytes(self, token: int) -> bytes:
        if token == FIRST_BYTE + self.without:
            return b""
        return self.WORDS[token - 300] if 300 <= token < 305 else super().token_bytes(token)

    def _encode(self, text: str, special: bool) -> list[int]:
        if not self.splits:
            return [FIRST_BYTE + ord("?")]
        bytes_after = super()._encode(text.removeprefix("the"), special)
        return [300 if self.leading else 302, *bytes_after] if text.startswith("the") else bytes_after


def forced(tokenizer: Tokenizer, text: str) -> list[bytes]:
    tokens = vocabulary_of(tokenizer, (EOS,)).tokens.tokenize_str(text)
    return [tokenizer.token_bytes(token) for token in tokens]


class TestKept:
    def test_a_text_is_compiled_once(self, monkeypatch: pytest.MonkeyPatch) -> None:
        tokenizer, count = ByteTokenizer(), 0
        in_time = compiling._in_time

        def counted(what: str, work: Any) -> Any:
            nonlocal count
            count += 1
            return in_time(what, work)

        monkeypatch.setattr(compiling, "_in_time", counted)
        for _ in range(3):
            Grammar.json_schema(tokenizer, PERSON)
            Grammar.json_schema(tokenizer, json.dumps(PERSON))
            Grammar.regex(tokenizer, "a+")
        assert count == 2
        for i in range(GRAMMARS_MAX):
            Grammar.regex(tokenizer, f"b{{{i + 1}}}")
        Grammar.regex(tokenizer, "a+")
        assert count == 3 + GRAMMARS_MAX
        assert len(vocabulary_of(tokenizer, (EOS,))._compiled) == GRAMMARS_MAX
