"""Jinja's sandbox, with a budget: a template makes text of its variables, and not more than it may.

Jinja's own keeps templates from Python's insides and from changing what they are given. Here every round of a
loop, call, filter and operator counts, and whatever could make something large is checked before it does.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from datetime import datetime
from functools import wraps
from types import ModuleType
from typing import Any, NoReturn

from jinja2 import TemplateError, nodes
from jinja2.runtime import LoopContext, Macro, Undefined
from jinja2.sandbox import ImmutableSandboxedEnvironment
from jinja2.visitor import NodeTransformer
from markupsafe import escape

from pteron.llm.templates.budget import (
    BudgetError,
    check_braces,
    check_date,
    check_indent,
    check_join,
    check_percent,
    check_power,
    check_product,
    check_replace,
    check_size,
    current,
    weigh,
)

FILTERS = (
    *("abs", "capitalize", "count", "d", "default", "dictsort", "e", "escape", "first", "float", "groupby"),
    *("indent", "int", "items", "join", "last", "length", "list", "lower", "map", "max", "min", "reject"),
    *("rejectattr", "replace", "reverse", "safe", "select", "selectattr", "sort", "string", "title", "trim"),
    *("unique", "upper"),
)
GLOBALS = ("dict", "joiner", "namespace", "range")
# Methods of Python's own types, by what they are methods of. What they make is no longer than what they are
# given, or is checked before.
METHODS: dict[type, frozenset[str]] = {
    str: frozenset(
        [
            *("capitalize", "casefold", "count", "endswith", "find", "format", "index", "isalnum", "isalpha"),
            *("isascii", "isdecimal", "isdigit", "isidentifier", "islower", "isnumeric", "isprintable"),
            *("isspace", "istitle", "isupper", "join", "lower", "lstrip", "partition", "removeprefix"),
            *("removesuffix", "replace", "rfind", "rindex", "rpartition", "rsplit", "rstrip", "split"),
            *("splitlines", "startswith", "strip", "swapcase", "title", "upper"),
        ]
    ),
    dict: frozenset(("get", "items", "keys", "values")),
    list: frozenset(("count", "index")),
    tuple: frozenset(("count", "index")),
}
SOURCE_MAX = 1 << 16  # characters of a template: compiling is not counted
_INDENT_MAX = 64
# Filters of Pteron's own; no template can spell such a name.
_EACH, _MADE, _CONCATENATED = "!each", "!made", "!concatenated"


class BoundedEnvironment(ImmutableSandboxedEnvironment):
    """Compiles templates that keep to the current budget."""

    intercepted_binops = frozenset(("+", "-", "*", "/", "//", "**", "%"))

    def __init__(self) -> None:
        # Newlines and indentation around blocks are layout, not prompt; loops may break and continue.
        super().__init__(
            trim_blocks=True,
            lstrip_blocks=True,
            extensions=["jinja2.ext.loopcontrols"],
            finalize=_printed,
        )
        self.globals = {name: self.globals[name] for name in GLOBALS}
        self.globals["raise_exception"] = _raise_exception
        self.globals["strftime_now"] = _strftime_now
        self.filters = {name: _bounded(name, self.filters[name]) for name in FILTERS}
        self.filters["tojson"] = _bounded("tojson", _tojson)
        # Texts stay plain ones: those that Jinja marks as safe have methods of their own.
        self.filters["safe"] = _bounded("safe", str)
        self.filters["e"] = self.filters["escape"] = _bounded("escape", lambda value: str(escape(value)))
        self.filters[_EACH] = lambda items: current.get().each(items)
        self.filters[_MADE] = lambda value: current.get().made(value)
        self.filters[_CONCATENATED] = _concatenated

    def compile_bounded(self, source: str) -> Any:
        """A template whose loops and new values are counted."""
        if len(source) > SOURCE_MAX:
            raise BudgetError(f"it has more than {SOURCE_MAX:,} characters")
        return self.from_string(_Counted(self).visit(self.parse(source)))

    @staticmethod
    def concat(parts: Iterable[str]) -> str:
        """What a template, a macro or a block prints."""
        budget, pieces, size = current.get(), list[str](), 0
        for part in budget.each(parts):
            size += len(part)
            check_size(size)
            pieces.append(part)
        return str(budget.made("".join(pieces)))

    def call_binop(self, context: Any, operator: str, left: Any, right: Any) -> Any:
        budget = current.get()
        budget.step()
        if operator == "*":
            check_product(left, right)
        elif operator == "**":
            check_power(left, right)
        elif operator == "%" and isinstance(left, str):
            check_percent(left, right)
        elif operator == "+":
            weigh(left, right)
        return budget.made(super().call_binop(context, operator, left, right))

    def wrap_str_format(self, value: Any) -> Callable[..., str] | None:
        """A text's `format`, in Jinja's own sandbox and within bounds."""
        original = super().wrap_str_format(value)
        if original is None:
            return None

        def bounded(*args: Any, **kwargs: Any) -> str:
            check_braces(value.__self__, *args, *kwargs.values())
            return str(original(*args, **kwargs))

        return bounded

    def call(__self, __context: Any, __obj: Any, *args: Any, **kwargs: Any) -> Any:  # noqa: N805
        """Names as in Jinja: a template may pass arguments by any name."""
        budget = current.get()
        budget.step()
        if isinstance(__obj, LoopContext) and args:  # a recursive loop goes through another list
            args = (budget.each(args[0]), *args[1:])
        else:
            args = _checked(__obj, args)
        if not isinstance(__obj, (LoopContext, Macro)):
            weigh(*args, *kwargs.values())
        return budget.made(super().call(__context, __obj, *args, **kwargs))


class _Counted(NodeTransformer):
    """Puts Pteron's own filters where a template goes through a list, or makes a value without a call.

    Jinja names the methods, after its nodes.
    """

    def __init__(self, environment: BoundedEnvironment) -> None:
        self._environment = environment

    def visit_For(self, node: nodes.For) -> Any:  # noqa: N802
        self.generic_visit(node)
        node.iter = self._filtered(node.iter, _EACH)
        return node

    def visit_ScopedEvalContextModifier(self, node: nodes.ScopedEvalContextModifier) -> Any:  # noqa: N802
        raise BudgetError("it switches escaping on or off, which prompts have no use for")

    def visit_Concat(self, node: nodes.Concat) -> Any:  # noqa: N802
        self.generic_visit(node)
        return self._filtered(nodes.List(node.nodes, lineno=node.lineno), _CONCATENATED)

    def visit_List(self, node: nodes.List) -> Any:  # noqa: N802
        return self._filtered(self.generic_visit(node), _MADE)

    visit_Dict = visit_List  # noqa: N815

    def visit_Tuple(self, node: nodes.Tuple) -> Any:  # noqa: N802
        self.generic_visit(node)
        return self._filtered(node, _MADE) if node.ctx == "load" else node

    def visit_Getitem(self, node: nodes.Getitem) -> Any:  # noqa: N802
        self.generic_visit(node)
        return self._filtered(node, _MADE) if isinstance(node.arg, nodes.Slice) else node

    def _filtered(self, node: nodes.Node, name: str) -> Any:
        made = nodes.Filter(node, name, [], [], None, None, lineno=node.lineno)
        return made.set_environment(self._environment)


def _bounded(name: str, original: Callable[..., Any]) -> Callable[..., Any]:
    """A filter that counts. Jinja passes some of them its environment or context first."""
    skipped = 1 if hasattr(original, "jinja_pass_arg") else 0

    @wraps(original)
    def bounded(*args: Any, **kwargs: Any) -> Any:
        budget = current.get()
        budget.step()
        before, (value, *rest) = args[:skipped], args[skipped:]
        if isinstance(value, Iterator):
            value = list(budget.each(value))
        weigh(value, *rest, *kwargs.values())
        if name == "replace":
            check_replace(str(value), *map(str, rest[:2]))
        elif name == "join":
            check_join(str(kwargs.get("d", rest[0] if rest else "")), list(value))
        elif name == "indent":
            _check_indent(str(value), kwargs.get("width", rest[0] if rest else 4))
        return budget.made(original(*before, value, *rest, **kwargs))

    return bounded


def _checked(called: Any, arguments: tuple[Any, ...]) -> tuple[Any, ...]:
    """The arguments that a method of Python's own types may be called with."""
    owner = getattr(called, "__self__", None)
    if owner is None or isinstance(owner, ModuleType) or type(owner).__module__ != "builtins":
        return arguments
    name, allowed = called.__name__, METHODS.get(type(owner), frozenset())
    if name not in allowed:
        raise BudgetError(f"it calls {name!r} of {type(owner).__name__!r}, which is not for templates")
    if not isinstance(owner, str):
        return arguments
    if name == "replace" and all(isinstance(argument, str) for argument in arguments[:2]):
        check_replace(owner, *arguments[:2])
    elif name == "join" and arguments:
        parts = list(current.get().each(arguments[0]))
        check_join(owner, parts)
        return parts, *arguments[1:]
    return arguments


def _check_indent(text: str, width: Any) -> None:
    width = len(width) if isinstance(width, str) else int(width)
    if width > _INDENT_MAX:
        raise BudgetError(f"it indents by more than {_INDENT_MAX} characters")
    check_indent(text, width)


def _printed(value: Any) -> Any:
    """What `{{ value }}` prints."""
    if isinstance(value, str):
        return value
    if not isinstance(value, (int, float, list, tuple, dict, Undefined, type(None))):
        raise BudgetError(f"it prints a {type(value).__name__}")
    weigh(value)
    return value


def _concatenated(parts: list[Any]) -> str:
    budget = current.get()
    budget.step()
    texts = [str(_printed(part)) for part in parts]
    weigh(texts)
    return str(budget.made("".join(texts)))


def _tojson(value: object, ensure_ascii: bool = False, indent: int | None = None, **options: Any) -> str:
    """Jinja's own escapes <, > and & for HTML, which a model has never seen."""
    if isinstance(indent, str) or (indent or 0) > _INDENT_MAX:
        raise BudgetError(f"it indents JSON by {indent!r}")
    options = {name: options[name] for name in ("separators", "sort_keys") if name in options}
    pieces, size = list[str](), 0
    for piece in json.JSONEncoder(ensure_ascii=ensure_ascii, indent=indent, **options).iterencode(value):
        size += len(piece)
        check_size(size)
        pieces.append(piece)
    return "".join(pieces)


def _strftime_now(pattern: str) -> str:
    check_date(pattern)
    return datetime.now().strftime(pattern)


def _raise_exception(message: str) -> NoReturn:
    raise TemplateError(message)
