"""A JSON schema, a regular expression or a Lark grammar from a client -> the text to compile, within limits.

Beyond these limits llguidance runs for minutes or overflows the stack, which ends the process.
"""

from __future__ import annotations

import json
import re
from reprlib import repr as shortened
from typing import Any, cast

from pteron.errors import InputError

SCHEMA_BYTES_MAX = 1 << 17
PATTERN_BYTES_MAX = 1 << 14
LARK_BYTES_MAX = 1 << 15
DEPTH_MAX = 64  # of a schema's nesting
REFERENCES_MAX = 500  # of a schema: a chain of thousands overflows llguidance's stack
RULES_MAX = 500  # of a grammar, for the same reason
MULTIPLE_MAX = 20_000  # llguidance has a lexer state for each remainder
_RULE = re.compile(r"^\s*[?!]?\w[\w.]*(?:\[[^\]]*\])?\s*:", re.MULTILINE)


def schema_text(schema: object) -> str:
    """A JSON schema as text. The order of its keys is the order in which properties are generated."""
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
        raise InputError(f"the JSON schema has a value that JSON does not allow: {error}") from None
    _check_size("a JSON schema", text, SCHEMA_BYTES_MAX)
    return text


def pattern_text(pattern: object) -> str:
    return _text("a regular expression", pattern, PATTERN_BYTES_MAX)


def lark_text(grammar: object) -> str:
    text = _text("a grammar", grammar, LARK_BYTES_MAX)
    rules = len(_RULE.findall(text))
    if rules > RULES_MAX:
        raise InputError(f"the grammar has {rules} rules, more than {RULES_MAX}")
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
        raise InputError(f"{what} holds a lone surrogate, at {error.start}: {error.reason}") from None
    if size > most:
        raise InputError(f"{what} has {size:,} bytes, more than {most:,}")


def _check_schema(schema: dict[Any, Any]) -> None:
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
