"""Unroll loops: after a line `//! unroll`, a loop is replaced by its body, once per value.

    //! unroll
    for (var t = 0u; t < TALL; t++) { sums[t] = 0.0; }

Enters: a kernel's text and its constants, which the loop's bounds may name. Leaves: the text without such
lines, every copy of a body in its own braces, with a number for the variable. Compilers unroll only short
loops; without that, an array indexed by the variable is not kept in registers.

After a line `//! spread`, an array whose indices are all numbers after unrolling becomes one variable per
element: some compilers allocate registers better then.

    //! spread
    var sums: array<vec4<f32>, TALL>;
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache

from pteron.wgsl.statements import compiled

_MARK = re.compile(r"^ *//! unroll\n", re.MULTILINE)
_LOOP = re.compile(r" *for \(var (\w+) = (\d+)(u?); \1 < ([^;]+); \1(?:\+\+| \+= ([^){]+))\) \{")
_SPREAD = re.compile(r"^ *//! spread\n( *)var (\w+): array<(.+), (\w+)>;", re.MULTILINE)


def unroll(text: str, constants: Mapping[str, int]) -> str:
    """The text with all marked loops unrolled and marked arrays spread, or a ValueError."""
    for mark in reversed(list(_MARK.finditer(text))):  # inner loops first
        loop = _LOOP.match(text, mark.end())
        if loop is None:
            line = text[mark.end() :].partition("\n")[0].strip()
            raise ValueError(f"this loop cannot be unrolled: {line}")
        variable, start, suffix, end, step = loop.groups()
        closing = _closing(text, loop.end() - 1)
        body = re.sub(r"//[^\n]*", "", text[loop.end() : closing])
        between = re.split(rf"(?<![\w.]){variable}\b", body)
        values = range(int(start), whole_number(end, constants), whole_number(step or "1", constants))
        copies = "\n".join(f"{{{f'{value}{suffix}'.join(between)}}}" for value in values)
        text = text[: mark.start()] + copies + text[closing + 1 :]
    while array := _SPREAD.search(text):
        text = _spread(text, array, constants)
    return text


def _spread(text: str, array: re.Match[str], constants: Mapping[str, int]) -> str:
    """The text with variables in place of an array, up to the end of its function."""
    indent, name, kind, count = array.groups()
    end = text.index("\n}", array.end())
    indices = range(whole_number(count, constants))

    @cache  # the same few again and again
    def element(index: str) -> str:
        number = whole_number(index, constants)
        if number not in indices:
            raise ValueError(f"{name} has no element {number}")
        return f"{name}_{number}"

    # A lookbehind after the name is faster than \\b before it.
    indexed = rf"{name}\[(?<!\w{name}\[)([^][]+)\]"
    body = re.sub(indexed, lambda found: element(found[1]), text[array.end() : end])
    variables = "\n".join(f"{indent}var {name}_{number}: {kind};" for number in indices)
    return text[: array.start()] + variables + body + text[end:]


def whole_number(expression: str, constants: Mapping[str, int]) -> int:
    """The value of a constant integer expression, or a ValueError."""
    number = expression.removesuffix("u")
    if number.isdecimal():  # most are
        return int(number)
    plain = re.sub(r"\b(\d+)u\b", r"\1", expression).replace("/", "//")
    try:
        value = eval(compiled(plain), {"__builtins__": {}}, constants)
    except (NameError, SyntaxError, TypeError) as error:
        raise ValueError(f"{expression} is not a whole number that the text states") from error
    if not isinstance(value, int):
        raise ValueError(f"{expression} is not a whole number")
    return value


def _closing(text: str, opening: int) -> int:
    """The position of the brace that closes the one at `opening`."""
    depth = 0
    for found in re.finditer(r"//[^\n]*|[{}]", text[opening:]):
        depth += {"{": 1, "}": -1}.get(found[0], 0)  # not those in comments
        if depth == 0:
            return opening + found.start()
    raise ValueError(f"no brace closes {text[opening : opening + 40]!r}")
