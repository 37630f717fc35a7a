"""A grammar for the texts of a tokenizer: a JSON schema, any JSON object, a regular expression, Lark's rules.

llguidance compiles it and finds the tokens that may follow. Work is bounded: by the size of the text
(bounds.py), by what the compiler may build, and by seconds.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any

from pteron.errors import InputError
from pteron.extras import need
from pteron.gpu.fork import when_forked
from pteron.llm.arguments import integers
from pteron.llm.grammar.limits import lark_text, pattern_text, schema_text
from pteron.llm.grammar.matcher import Matcher, as_input_error, first_line
from pteron.llm.grammar.vocabulary import Vocabulary, vocabulary_of
from pteron.llm.tokenizer import Tokenizer

COMPILE_SECONDS = 10.0
COMPILERS = 2  # at work at once: one that does not come back holds its place
LEXER_STATES_MAX = 50_000  # a kilobyte or two each
GRAMMAR_MAX = 100_000  # symbols
# Between the parts of a JSON text: a space, or a line's end and what the next begins with. Weak models go on
# for pages where any blanks are allowed.
WHITESPACE = r"( |\n {0,16}|\n\t{0,8})"
_places = threading.BoundedSemaphore(COMPILERS)


def _open_places() -> None:
    """In a forked child, which has none of the threads that held places."""
    global _places
    _places = threading.BoundedSemaphore(COMPILERS)


when_forked(_open_places)


class Grammar:
    """What a text may be. It is compiled once for each tokenizer: making it again costs nothing.

    Tokens that end a text are the tokenizer's, unless `eos_ids` names others.
    """

    def __init__(self, tokenizer: Tokenizer, compiled: Any, vocabulary: Vocabulary) -> None:
        self.tokenizer = tokenizer
        self._compiled = compiled
        self._vocabulary = vocabulary  # whose tokens the compiled one is made of

    @classmethod
    def json_schema(
        cls, tokenizer: Tokenizer, schema: dict[str, Any] | str, *, eos_ids: Sequence[int] | None = None
    ) -> Grammar:
        """JSON that a schema describes. Keywords that cannot be held to are an InputError."""
        text = schema_text(schema)
        options = {"whitespace_pattern": WHITESPACE}
        return _made(
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
        """Text that a regular expression matches from beginning to end."""
        text = pattern_text(pattern)
        return _made(
            tokenizer, eos_ids, "the regular expression", lambda matching: matching.grammar_from_regex(text)
        )

    @classmethod
    def lark(cls, tokenizer: Tokenizer, text: str, *, eos_ids: Sequence[int] | None = None) -> Grammar:
        """Text of a context-free grammar in Lark's notation, from its rule `start`."""
        text = lark_text(text)
        return _made(tokenizer, eos_ids, "the grammar", lambda matching: matching.grammar_from_lark(text))

    def matcher(self) -> Matcher:
        """What follows one text from its beginning."""
        return Matcher(self._compiled.deep_copy(), frozenset(self._vocabulary.eos_ids))


def _made(
    tokenizer: Tokenizer, eos_ids: Sequence[int] | None, what: str, read: Callable[[Any], str]
) -> Grammar:
    if not isinstance(tokenizer, Tokenizer):
        raise InputError(f"a grammar is made for a Tokenizer, as llm.tokenizer, not {tokenizer!r}")
    library = need("llguidance", "a grammar", "serve")
    ends = tokenizer.eos_ids if eos_ids is None else tuple(integers("eos_ids", eos_ids))
    vocabulary = vocabulary_of(tokenizer, ends)
    with as_input_error(f"{what} cannot be read"):
        text = read(library.LLMatcher)

    def compile() -> Any:
        limits = library.LLParserLimits(
            max_lexer_states=LEXER_STATES_MAX, max_grammar_size=GRAMMAR_MAX, verbose_errors=False
        )
        matcher = library.LLMatcher(vocabulary.tokens, text, log_level=0, limits=limits)
        error = matcher.get_error()
        if not error:  # some faults show where a text begins
            begun = matcher.deep_copy()
            begun.compute_bitmask()
            error = begun.get_error()
        if error:
            raise InputError(f"{what} cannot be used: {first_line(error)}")
        return matcher

    return Grammar(tokenizer, vocabulary.compiled(text, lambda: _in_time(what, compile)), vocabulary)


def _in_time(what: str, work: Callable[[], Any]) -> Any:
    """What some work makes, or an InputError where it takes too long. It goes on then, in a thread that
    nobody waits for, and holds one of few places."""
    if not _places.acquire(timeout=COMPILE_SECONDS):
        raise InputError(f"{what} was not compiled: others still are, after {COMPILE_SECONDS:g} s")
    made: list[Any] = []
    failed: list[BaseException] = []

    def run() -> None:
        try:
            with as_input_error(f"{what} cannot be compiled"):
                made.append(work())
        except BaseException as error:
            failed.append(error)
        finally:
            _places.release()

    thread = threading.Thread(target=run, name="pteron-grammar", daemon=True)
    try:
        thread.start()
    except BaseException:
        _places.release()
        raise
    thread.join(COMPILE_SECONDS)
    if failed:
        raise failed[0]
    if not made:
        raise InputError(f"{what} takes more than {COMPILE_SECONDS:g} s to compile; a simpler one is needed")
    return made[0]
