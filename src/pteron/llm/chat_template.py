"""The source of a chat template -> a Jinja template whose loops and calls end at a deadline.

Templates come with models and are not trusted: they run in Jinja's sandbox. A single filter, method or
operator has no limit. Templates get the extensions that Hugging Face's transformers gives them:
`{% generation %}`, `{% break %}`, `{% continue %}`, `tojson`, `strftime_now` and `raise_exception`.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Iterator
from contextvars import ContextVar
from datetime import datetime
from typing import Any, NoReturn

from jinja2 import TemplateError, nodes
from jinja2.ext import Extension
from jinja2.parser import Parser
from jinja2.sandbox import ImmutableSandboxedEnvironment
from jinja2.visitor import NodeTransformer

SECONDS_MAX = 5.0  # of one rendering
deadline: ContextVar[float] = ContextVar("deadline")  # of this rendering, in seconds of time.monotonic()


class Generation(Extension):
    """`{% generation %}…{% endgeneration %}`: marks the assistant's turns for training; renders its body."""

    tags = {"generation"}  # noqa: RUF012  # as the base class has it

    def parse(self, parser: Parser) -> nodes.Node:
        line = next(parser.stream).lineno
        return nodes.Scope(parser.parse_statements(("name:endgeneration",), drop_needle=True), lineno=line)


class ChatTemplateEnvironment(ImmutableSandboxedEnvironment):
    """Checks the deadline at each call and iteration."""

    def __init__(self) -> None:
        extensions = ["jinja2.ext.loopcontrols", Generation]
        super().__init__(trim_blocks=True, lstrip_blocks=True, extensions=extensions)
        del self.globals["lipsum"]  # one call can run for minutes
        self.globals |= {"raise_exception": _raise_exception, "strftime_now": _strftime_now}
        self.filters |= {"tojson": _to_json, "timed": _timed}

    def _parse(self, source: str, name: str | None, filename: str | None) -> Any:
        return _Checks(self).visit(super()._parse(source, name, filename))

    # Parameter names as in Jinja: a template may pass keyword arguments of any name.
    def call(__self, __context: Any, __obj: Any, *args: Any, **kwargs: Any) -> Any:  # noqa: N805
        _check_time()
        return super().call(__context, __obj, *args, **kwargs)


class _Checks(NodeTransformer):
    """Adds a check to each loop."""

    def __init__(self, environment: ChatTemplateEnvironment) -> None:
        self._environment = environment

    def visit_For(self, node: nodes.For) -> nodes.Node:  # noqa: N802  # Jinja derives the name
        self.generic_visit(node)
        timed = nodes.Filter(node.iter, "timed", [], [], None, None, lineno=node.lineno)
        node.iter = timed.set_environment(self._environment)
        return node


def _timed(items: Iterable[Any]) -> Iterator[Any]:
    for item in items:
        _check_time()
        yield item


def _check_time() -> None:
    if time.monotonic() > deadline.get():
        raise TemplateError(f"rendering takes longer than {SECONDS_MAX:g} seconds")


def _to_json(
    value: object,
    ensure_ascii: bool = False,
    indent: int | str | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    """The `tojson` filter. Jinja's own escapes <, > and & for HTML, and models are not trained on that."""
    return json.dumps(
        value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys
    )


def _strftime_now(pattern: str) -> str:
    return datetime.now().strftime(pattern)


def _raise_exception(message: str) -> NoReturn:
    raise TemplateError(message)
