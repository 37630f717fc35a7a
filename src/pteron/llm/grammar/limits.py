"""What a grammar may be, before any library reads it: texts that would take it minutes, or all of its stack.

Enters: a JSON schema as text or as an object, a regular expression, a grammar in Lark's notation. Leaves: the
text to compile; an InputError says what is too much.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator
from decimal import Decimal
from reprlib import repr as shortened
from typing import Any

from pteron.errors import InputError

SCHEMA_BYTES_MAX = 1 << 17
PATTERN_BYTES_MAX = 1 << 14
LARK_BYTES_MAX = 1 << 15
DEPTH_MAX = 64  # of a schema's nesting
REFERENCES_MAX = 500  # of a schema: a chain of some thousands overflows the compiler's stack
RULES_MAX = 500  # of a grammar, for the same reason
MULTIPLE_MAX = 20_000  # common to all of a schema: the compiler has a state for each remainder
_RULE = re.compile(r"^\s*[?!]?\w[\w.]*(?:\[[^\]]*\])?\s*:", re.MULTILINE)


def schema_text(schema: object) -> str:
    """A JSON schema as text, its keys in their order: that is the order in which they are written."""
    if isinstance(schema, str):
        _check_size("a JSON schema", schema, SCHEMA_BYTES_MAX)
        try:
            schema = json.loads(schema)
        except (ValueError, RecursionError) as error:
            raise InputError(f"the JSON schema is not valid JSON: {error}") from None
    if not isinstance(schema, dict):
        raise InputError(f"a JSON schema must be an object, not {shortened(schema)}")
    _check_schema(schema)
    try:
        text = json.dumps(schema, allow_nan=False, ensure_ascii=False)
    except (TypeError, ValueError, RecursionError) as error:
        raise InputError(f"the JSON schema holds what JSON does not: {error}") from None
    _check_size("a JSON schema", text, SCHEMA_BYTES_MAX)
    return text


def pattern_text(pattern: object) -> str:
    """A regular expression."""
    return _text("a regular expression", pattern, PATTERN_BYTES_MAX)


def lark_text(grammar: object) -> str:
    """A grammar in Lark's notation."""
    text = _text("a grammar", grammar, LARK_BYTES_MAX)
    rules = len(_RULE.findall(text))
    if rules > RULES_MAX:
        raise InputError(f"the grammar has {rules} rules, at most {RULES_MAX} are taken")
    return text


def _text(what: str, given: object, most: int) -> str:
    if not isinstance(given, str):
        raise InputError(f"{what} must be a string, not {shortened(given)}")
    _check_size(what, given, most)
    return given


def _check_size(what: str, text: str, most: int) -> None:
    try:
        size = len(text.encode())
    except UnicodeEncodeError as error:
        raise InputError(f"{what} holds half a character, at {error.start}: {error.reason}") from None
    if size > most:
        raise InputError(f"{what} may have {most:,} bytes, this has {size:,}")


def _check_schema(schema: dict[Any, Any]) -> None:
    references, multiples = 0, list[Decimal]()
    for item in _objects(schema):
        references += "$ref" in item
        step = item.get("multipleOf")
        if isinstance(step, (int, float)) and not isinstance(step, bool) and step > 0:  # which NaN is not
            multiples.append(Decimal(str(min(step, MULTIPLE_MAX + 1))))  # floats do not hold every integer
    if references > REFERENCES_MAX:
        raise InputError(f"the JSON schema has {references} references, at most {REFERENCES_MAX} are taken")
    if multiples and _common_multiple(multiples) > MULTIPLE_MAX:
        raise InputError(
            f"the JSON schema's multipleOf are too much: the least multiple of all, without its point, may "
            f"be {MULTIPLE_MAX:,}"
        )


def _objects(schema: object) -> Iterator[dict[Any, Any]]:
    """All objects within a schema, however deep the first one too deep lies."""
    open_ = [(schema, 1)]
    while open_:
        item, depth = open_.pop()
        if depth > DEPTH_MAX:
            raise InputError(f"the JSON schema is nested more than {DEPTH_MAX} levels deep")
        if isinstance(item, dict):
            yield item
            open_ += [(value, depth + 1) for value in item.values()]
        elif isinstance(item, (list, tuple)):
            open_ += [(value, depth + 1) for value in item]


def _common_multiple(multiples: list[Decimal]) -> int:
    """The digits of the least number that is a multiple of all, without a point."""
    exponents = [int(step.as_tuple().exponent) for step in multiples]
    if max(exponents) - min(exponents) > 40:
        return MULTIPLE_MAX + 1
    return math.lcm(*(int(step.scaleb(-min(0, *exponents))) for step in multiples))
