"""The Jinja environment of chat templates.

Templates come with models and are not trusted: they run in Jinja's sandbox. They get the extensions that
Hugging Face's transformers gives them: `{% generation %}`, `{% break %}`, `{% continue %}`, `tojson`,
`strftime_now` and `raise_exception`.
"""

from __future__ import annotations

import json
from datetime import datetime
from functools import cache, partial
from typing import NoReturn

from jinja2 import TemplateError, nodes
from jinja2.ext import Extension
from jinja2.parser import Parser
from jinja2.sandbox import ImmutableSandboxedEnvironment


class Generation(Extension):
    """`{% generation %}…{% endgeneration %}`: marks the assistant's turns for training; renders its body."""

    tags = {"generation"}  # noqa: RUF012  # as the base class has it

    def parse(self, parser: Parser) -> nodes.Node:
        line = next(parser.stream).lineno
        return nodes.Scope(parser.parse_statements(("name:endgeneration",), drop_needle=True), lineno=line)


@cache
def environment() -> ImmutableSandboxedEnvironment:
    extensions = ["jinja2.ext.loopcontrols", Generation]
    made = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True, extensions=extensions)
    made.globals |= {
        "raise_exception": _raise_exception,
        "strftime_now": lambda pattern: datetime.now().strftime(pattern),
    }
    # Jinja's own `tojson` escapes <, > and & for HTML, and models are not trained on that.
    made.filters["tojson"] = partial(json.dumps, ensure_ascii=False)
    return made


def _raise_exception(message: str) -> NoReturn:
    raise TemplateError(message)
