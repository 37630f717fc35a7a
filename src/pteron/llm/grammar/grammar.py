"""A JSON schema, a regular expression or a Lark grammar -> a compiled grammar for a tokenizer.

llguidance compiles it, under limits of source size (limits.py), compiled size and time.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from reprlib import repr as shortened
from typing import Any

import numpy as np
import numpy.typing as npt

from pteron.errors import FormatError, InputError
from pteron.extras import need
from pteron.gpu.fork import when_forked
from pteron.llm.arguments import integers
from pteron.llm.grammar.limits import lark_text, pattern_text, schema_text
from pteron.llm.grammar.vocabulary import Vocabulary, vocabulary_of
from pteron.llm.tokenizers.tokenizer import Tokenizer
from pteron.names.model_files import as_format_error

COMPILE_SECONDS = 10.0
COMPILERS = 2  # threads at the same time; one that exceeds the time limit counts until it ends
LEXER_STATES_MAX = 50_000  # one to two kilobytes each
GRAMMAR_MAX = 100_000  # symbols
# Between JSON tokens: a space, or a newline and indentation. If any white space were allowed, weak models
# would generate pages of it.
WHITESPACE = r"( |\n {0,16}|\n\t{0,8})"
# Flags of Python's expressions -> llguidance's; those without a letter have no effect on a full match.
_FLAGS = {re.IGNORECASE: "i", re.DOTALL: "s", re.MULTILINE: "", re.UNICODE: ""}
# Errors of llguidance that say nothing to a caller.
_MESSAGES = {
    "NoExtensionBias": "no text matches it",
    "coerce_one_of": "the schemas of a oneOf may have values in common; use anyOf",
}
_compilers = threading.BoundedSemaphore(COMPILERS)


def _reset_compilers() -> None:
    """In a forked child: the threads that compiled do not exist there."""
    global _compilers
    _compilers = threading.BoundedSemaphore(COMPILERS)


when_forked(_reset_compilers)


class Grammar:
    """A compiled grammar. Compiled grammars are cached per tokenizer.

    `eos_ids` are the tokens that end a text, by default the tokenizer's.
    """

    def __init__(self, tokenizer: Tokenizer, compiled: Any, vocabulary: Vocabulary) -> None:
        self.tokenizer = tokenizer
        self._compiled = compiled
        self._vocabulary = vocabulary  # kept alive: the compiled grammar uses it

    @classmethod
    def of(
        cls,
        tokenizer: Tokenizer,
        form: Grammar | Mapping[str, Any] | re.Pattern[str],
        *,
        eos_ids: Sequence[int] | None = None,
    ) -> Grammar:
        """The grammar of a JSON schema (a dict), of a compiled regular expression, or of itself."""
        if isinstance(form, Grammar):
            return form
        if isinstance(form, Mapping):
            return cls.json_schema(tokenizer, dict(form), eos_ids=eos_ids)
        if isinstance(form, re.Pattern):
            return cls.regex(tokenizer, _expression(form), eos_ids=eos_ids)
        raise InputError(
            "grammar must be a Grammar, a dict (a JSON schema) or a regular expression as re.compile gives "
            f"it, not {shortened(form)}"
        )

    @classmethod
    def json_schema(
        cls, tokenizer: Tokenizer, schema: dict[str, Any] | str, *, eos_ids: Sequence[int] | None = None
    ) -> Grammar:
        """JSON that matches a schema. An unsupported keyword is an InputError."""
        text = schema_text(schema)
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
        text = pattern_text(pattern)
        return _compile(
            tokenizer, eos_ids, "the regular expression", lambda matching: matching.grammar_from_regex(text)
        )

    @classmethod
    def lark(cls, tokenizer: Tokenizer, text: str, *, eos_ids: Sequence[int] | None = None) -> Grammar:
        """Text that a context-free grammar in Lark's notation matches; the start rule is `start`."""
        text = lark_text(text)
        return _compile(tokenizer, eos_ids, "the grammar", lambda matching: matching.grammar_from_lark(text))

    def matcher(self) -> Matcher:
        """A new matcher at the start of a text."""
        return Matcher(self._compiled.deep_copy(), frozenset(self._vocabulary.eos_ids))


def _expression(pattern: re.Pattern[str]) -> str:
    """A compiled expression as text, with its flags."""
    if isinstance(pattern.pattern, bytes):
        raise InputError(f"a regular expression must be of text, not of bytes: {shortened(pattern.pattern)}")
    flags = re.RegexFlag(pattern.flags)
    for flag in flags:
        if flag not in _FLAGS:
            raise InputError(f"a grammar cannot have the flag re.{flag.name} of {shortened(pattern.pattern)}")
    letters = "".join(letter for flag, letter in _FLAGS.items() if flag in flags)
    return f"(?{letters}:{pattern.pattern})" if letters else pattern.pattern


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

    return Grammar(tokenizer, vocabulary.compiled(text, lambda: _in_time(what, compile_text)), vocabulary)


def _in_time(what: str, work: Callable[[], Any]) -> Any:
    """Run `work` in a thread; an InputError after COMPILE_SECONDS. Python cannot stop a thread: it runs on,
    and counts as one of COMPILERS until it ends."""
    if not _compilers.acquire(timeout=COMPILE_SECONDS):
        raise InputError(f"{what} was not compiled: others are still compiling after {COMPILE_SECONDS:g} s")
    future: Future[Any] = Future()

    def run() -> None:
        try:
            with as_input_error(f"{what} cannot be compiled"):
                future.set_result(work())
        except BaseException as error:
            future.set_exception(error)
        finally:
            _compilers.release()

    threading.Thread(target=run, name="pteron-grammar", daemon=True).start()
    try:
        return future.result(COMPILE_SECONDS)
    except TimeoutError:
        raise InputError(f"{what} takes more than {COMPILE_SECONDS:g} s to compile; simplify it") from None


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
    """A message of llguidance without the dump of grammar and state that follows it. What is wrong with a
    regular expression stands on a line of its own."""
    first, *others = error.strip().split("\n")
    for mark, message in _MESSAGES.items():
        if mark in first:
            return message
    reason = next((line.removeprefix("error:") for line in others if line.startswith("error:")), "")
    return f"{first.partition('<non-verbose')[0].strip()[:400]}{reason}"
