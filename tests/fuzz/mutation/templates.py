"""Chat templates: put together from what the language has, and changed piece by piece."""

from __future__ import annotations

import re
from collections.abc import Callable
from random import Random

from fuzz.mutation.havoc import havoc

_PIECE = re.compile(r"\{%.*?%\}|\{\{.*?\}\}|[^{]+|\{", re.DOTALL)
_VALUES = (
    "messages", "messages[0]", "messages[0].content", "messages[-1]['role']", "bos_token", "eos_token",
    "tools", "add_generation_prompt", "0", "1", "-1", "10**9", "1e308", "''", "'a'", "'%999d'", "[]",
    "{}", "none", "true", "loop", "loop.index", "namespace()", "namespace(x=0)", "range(3)",
    "range(99999)", "range(10**12)", "dict(a=1)", "cycler", "joiner", "lipsum()", "self", "caller",
    "undefined", "x", "[1, [2]]", "''.__class__",
)  # fmt: skip
_FILTERS = (
    "trim", "tojson", "tojson(indent=10**8)", "upper", "length", "list", "first", "last", "join",
    "join(',')", "int", "float", "string", "safe", "capitalize", "replace('a', 'b')", "replace('', 'b')",
    "indent(99999999)", "center(10**9)", "wordwrap(0)", "batch(0)", "slice(0)", "round(400)", "abs",
    "sum", "sort", "unique", "items", "map('upper')", "select", "random", "format(1)", "truncate(-1)",
    "filesizeformat", "dictsort", "pprint", "groupby('role')", "attr('__class__')", "xmlattr", "reverse",
    "min", "max", "urlize", "striptags", "selectattr('role', 'equalto', 'user') | list", "default('x')",
)  # fmt: skip
_BINARY = (
    "+", "-", "*", "/", "//", "%", "**", "~", "==", "<", "in", "and", "or", "is",
)  # fmt: skip
_TESTS = (
    "defined", "string", "mapping", "iterable", "odd", "divisibleby(0)", "none", "sameas(x)", "filter",
    "in(x)",
)  # fmt: skip


def random_template(random: Random) -> bytes:
    """A template that is mostly well formed."""
    return "".join(_statement(random, 3) for _ in range(random.randrange(1, 6))).encode("utf-8", "replace")


def mutate_template(data: bytes, random: Random, other: Callable[[], bytes]) -> bytes:
    pieces = _PIECE.findall(data.decode("utf-8", "replace"))
    if not pieces or random.random() < 0.1:
        return havoc(data, random, other)
    index = random.randrange(len(pieces))
    match random.randrange(6):
        case 0:
            del pieces[index]
        case 1:
            pieces.insert(index, random.choice(pieces))
        case 2:
            pieces.insert(index, _statement(random, 2))
        case 3:
            pieces[index] = _expression_piece(random)
        case 4:
            pieces.insert(index, random.choice(_PIECE.findall(other().decode("utf-8", "replace")) or [""]))
        case 5:
            words = re.split(r"(\W+)", pieces[index])
            words[random.randrange(len(words))] = random.choice((*_VALUES, *_FILTERS, *_BINARY))
            pieces[index] = "".join(words)
    return "".join(pieces).encode("utf-8", "replace")[:50_000]


def _expression_piece(random: Random) -> str:
    return "{{ " + _expression(random, 3) + " }}"


def _expression(random: Random, depth: int) -> str:
    if depth == 0:
        return random.choice(_VALUES)
    inner = _expression(random, depth - 1)
    match random.randrange(7):
        case 0:
            return random.choice(_VALUES)
        case 1:
            return f"({inner} {random.choice(_BINARY)} {_expression(random, depth - 1)})"
        case 2 | 3:
            return f"({inner} | {random.choice(_FILTERS)})"
        case 4:
            return f"({inner} is {random.choice(_TESTS)})"
        case 5:
            return f"({inner})[{_expression(random, depth - 1)}]"
    return f"({inner} if {_expression(random, depth - 1)} else {random.choice(_VALUES)})"


def _statement(random: Random, depth: int) -> str:
    if depth == 0:
        return _expression_piece(random)
    body = "".join(_statement(random, depth - 1) for _ in range(random.randrange(1, 3)))
    value = _expression(random, 2)
    match random.randrange(9):
        case 0:
            return f"{{% for x in {value} %}}{body}{{% endfor %}}"
        case 1:
            return f"{{% for x in {value} recursive %}}{{{{ loop(x) }}}}{body}{{% endfor %}}"
        case 2:
            return f"{{% if {value} %}}{body}{{% else %}}{{{{ x }}}}{{% endif %}}"
        case 3:
            return f"{{% set x = {value} %}}{body}"
        case 4:
            return f"{{% set x = namespace(x={value}) %}}{{% set x.x = {value} %}}{body}"
        case 5:
            called = random.choice(("x", "f(x)", "f(x) + f(x)"))
            return f"{{% macro f(x=1) %}}{{{{ {called} }}}}{{% endmacro %}}{{{{ f({value}) }}}}"
        case 6:
            tag = random.choice(
                ("break", "continue", "include 'a'", "import 'a' as a", "extends 'a'", "block a", "raw")
            )
            return f"{{% for x in range(3) %}}{body}{{% {tag} %}}{{% endfor %}}"
        case 7:
            called = random.choice(("f", "joiner"))
            filtered = f"{{% filter upper %}}{body}{{% endfilter %}}"
            return f"{{% call(x) {called}() %}}{body}{{% endcall %}}{filtered}"
    return _expression_piece(random) + random.choice(("", "text", "\n", "{#"))
