"""A JSON schema, a regular expression or a Lark grammar -> a compiled grammar for a tokenizer.

llguidance compiles it, up to a compiled size. A JSON schema may come from a client of a server: one that
would make llguidance run for minutes, or overflow its stack, is refused before.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from reprlib import repr as shortened
from typing import Any, cast

import numpy as np
import numpy.typing as npt

from pteron.errors import FormatError, InputError
from pteron.extras import need
from pteron.llm.arguments import integers
from pteron.llm.grammar.vocabulary import Vocabulary, vocabulary_of
from pteron.llm.model_files import as_format_error
from pteron.llm.tokenizer import Tokenizer

LEXER_STATES_MAX = 50_000  # one to two kilobytes each
GRAMMAR_MAX = 100_000  # symbols
DEPTH_MAX = 64  # of a schema's nesting
REFERENCES_MAX = 500  # of a schema: a chain of thousands overflows llguidance's stack
MULTIPLE_MAX = 20_000  # llguidance has a lexer state for each remainder
# Between JSON tokens: a space, or a newline and indentation. If any white space were allowed, weak models
# would generate pages of it.
WHITESPACE = r"( |\n {0,16}|\n\t{0,8})"


class Grammar:
    """A compiled grammar. Compiled grammars are cached per tokenizer.

    `eos_ids` are the tokens that end a text, by default the tokenizer's.
    """

    def __init__(self, tokenizer: Tokenizer, compiled: Any, vocabulary: Vocabulary) -> None:
        self.tokenizer = tokenizer
        self._compiled = compiled
        self._vocabulary = vocabulary  # kept alive: the compiled grammar uses it

    @classmethod
    def json_schema(
        cls, tokenizer: Tokenizer, schema: dict[str, Any] | str, *, eos_ids: Sequence[int] | None = None
    ) -> Grammar:
        """JSON that matches a schema. An unsupported keyword is an InputError."""
        text = _schema_text(schema)
        options = {"whitespace_pattern": WHITESPACE}
        return _compile(
            tokenizer,
            eos_ids,
            "the JSON schema",
            lambda matching: matching.grammar_from_json_schema(text, overrides=options),
        )

    @classmethod
    def json_object(cls, tokenizer: Tokenizer, *, eos_ids: Sequence[int] | None = None) -> Grammar:
        """Any JSON object."""
        return cls.json_schema(tokenizer, {"type": "object"}, eos_ids=eos_ids)

    @classmethod
    def regex(cls, tokenizer: Tokenizer, pattern: str, *, eos_ids: Sequence[int] | None = None) -> Grammar:
        """Text that a regular expression matches fully."""
        return _compile(
            tokenizer,
            eos_ids,
            "the regular expression",
            lambda matching: matching.grammar_from_regex(pattern),
        )

    @classmethod
    def lark(cls, tokenizer: Tokenizer, text: str, *, eos_ids: Sequence[int] | None = None) -> Grammar:
        """Text that a context-free grammar in Lark's notation matches; the start rule is `start`."""
        return _compile(tokenizer, eos_ids, "the grammar", lambda matching: matching.grammar_from_lark(text))

    def matcher(self) -> Matcher:
        """A new matcher at the start of a text."""
        return Matcher(self._compiled.deep_copy(), frozenset(self._vocabulary.eos_ids))


def _compile(
    tokenizer: Tokenizer, eos_ids: Sequence[int] | None, what: str, read: Callable[[Any], str]
) -> Grammar:
    if not isinstance(tokenizer, Tokenizer):
        raise InputError(f"a grammar needs a Tokenizer, such as llm.tokenizer, not {tokenizer!r}")
    library = need("llguidance", "a grammar", "serve")
    ends = tokenizer.eos_ids if eos_ids is None else tuple(integers("eos_ids", eos_ids))
    vocabulary = vocabulary_of(tokenizer, ends)
    with as_input_error(f"{what} cannot be read"):
        text = read(library.LLMatcher)

    def compile_text() -> Any:
        limits = library.LLParserLimits(
            max_lexer_states=LEXER_STATES_MAX, max_grammar_size=GRAMMAR_MAX, verbose_errors=False
        )
        matcher = library.LLMatcher(vocabulary.tokens, text, log_level=0, limits=limits)
        error = matcher.get_error()
        if not error:  # some errors appear only with the first mask
            first = matcher.deep_copy()
            first.compute_bitmask()
            error = first.get_error()
        if error:
            raise InputError(f"{what} cannot be used: {first_line(error)}")
        return matcher

    with as_input_error(f"{what} cannot be compiled"):
        return Grammar(tokenizer, vocabulary.compiled(text, compile_text), vocabulary)


def _schema_text(schema: object) -> str:
    """A JSON schema as text. The order of its keys is the order in which properties are generated."""
    if isinstance(schema, str):
        try:
            schema = json.loads(schema)
        except (ValueError, RecursionError) as error:
            raise InputError(f"the JSON schema is not valid JSON: {error}") from None
    if not isinstance(schema, dict):
        raise InputError(f"a JSON schema must be an object, not {shortened(schema)}")
    references, pending = 0, [(cast(object, schema), 1)]
    while pending:
        item, depth = pending.pop()
        if depth > DEPTH_MAX:
            raise InputError(f"the JSON schema is nested more than {DEPTH_MAX} levels deep")
        if isinstance(item, dict):
            references += "$ref" in item
            step = item.get("multipleOf")
            if isinstance(step, (int, float)) and step > 0 and max(step, 1 / step) > MULTIPLE_MAX:
                raise InputError(f"multipleOf must be from 1/{MULTIPLE_MAX} to {MULTIPLE_MAX}, not {step}")
            pending += [(value, depth + 1) for value in item.values()]
        elif isinstance(item, (list, tuple)):
            pending += [(value, depth + 1) for value in item]
    if references > REFERENCES_MAX:
        raise InputError(f"the JSON schema has {references} references, more than {REFERENCES_MAX}")
    try:
        return json.dumps(schema, allow_nan=False, ensure_ascii=False)
    except (TypeError, ValueError) as error:
        raise InputError(f"the JSON schema has a value that JSON does not allow: {error}") from None


@contextmanager
def as_input_error(what: str) -> Iterator[None]:
    """Turn any error of llguidance into an InputError: grammars come from callers."""
    try:
        with as_format_error(what):
            yield
    except FormatError as error:
        raise InputError(str(error)) from error


class Matcher:
    """The state of one sequence. `mask` gives the allowed next tokens, `take` appends a token."""

    def __init__(self, matcher: Any, eos_ids: frozenset[int]) -> None:
        self._matcher = matcher
        self._eos_ids = eos_ids
        self._is_ended = False

    def mask(self) -> npt.NDArray[np.uint32]:
        """A bit per token, the lowest bit of a word first; 1 is allowed. EOS tokens are allowed where the
        text may end."""
        with as_input_error("the grammar failed"):
            words = np.frombuffer(self._matcher.compute_bitmask(), np.uint32)
        self._check()
        return words

    def take(self, token: int) -> None:
        """Append a token. A token that the grammar does not allow is an InputError."""
        with as_input_error("the grammar failed"):
            was_taken = self._matcher.consume_token(token)
        if not was_taken:
            self._check()
            raise InputError(
                f"the grammar does not allow token {token}; logit biases or NaN logits left no allowed token"
            )
        self._is_ended |= token in self._eos_ids

    @property
    def is_finished(self) -> bool:
        """Whether the text is complete and nothing can follow it."""
        return self._is_ended or bool(self._matcher.is_stopped())

    @property
    def may_end(self) -> bool:
        """Whether the text is complete."""
        return self._is_ended or bool(self._matcher.is_accepting())

    def _check(self) -> None:
        error = self._matcher.get_error()
        if error:
            raise InputError(f"the grammar failed: {first_line(error)}")


def first_line(error: str) -> str:
    """A message of llguidance without the dump of grammar and state that follows it."""
    return error.strip().partition("\n")[0].partition("<non-verbose")[0].strip()[:400]
