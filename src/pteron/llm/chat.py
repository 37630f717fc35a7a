"""Messages -> the prompt a model was trained on, by the chat template it came with.

    render([{"role": "user", "content": "Hello"}], tokenizer.chat_template)

Templates are Jinja programs written by strangers: they run in a sandbox, with the few extras that Hugging
Face's own rendering gives them.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from functools import lru_cache
from typing import Any, NoReturn, TypeAlias

from pteron.errors import InputError
from pteron.extras import need

Message: TypeAlias = Mapping[str, Any]

# For models without a template: one line for each turn.
PLAIN_TEMPLATE = """\
{% for message in messages %}
{{ message.role | capitalize }}: {{ message.content | trim }}
{% endfor %}
{% if add_generation_prompt %}Assistant:{% endif %}"""


def render(
    messages: Sequence[Message],
    template: str | None = None,
    *,
    bos: str = "",
    eos: str = "",
    add_generation_prompt: bool = True,
    **variables: object,
) -> str:
    """The prompt for `messages`, each with a "role" and a "content".

    `bos` and `eos` are those tokens as text. `add_generation_prompt` opens the assistant's turn. Further
    variables reach the template: `tools`, `enable_thinking`, ...
    """
    jinja2 = need("jinja2", "rendering a chat template")
    try:
        compiled = _compile(template or PLAIN_TEMPLATE)
        text: str = compiled.render(
            messages=[dict(message) for message in messages],
            bos_token=bos,
            eos_token=eos,
            add_generation_prompt=add_generation_prompt,
            **variables,
        )
    except jinja2.TemplateError as error:
        raise InputError(f"the chat template does not take these messages: {error}") from error
    return text


@lru_cache(maxsize=8)
def _compile(template: str) -> Any:
    jinja2 = need("jinja2", "rendering a chat template")
    sandbox = need("jinja2.sandbox", "rendering a chat template")
    # Newlines and indentation around blocks are layout, not prompt; loops may break and continue.
    environment = sandbox.ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=["jinja2.ext.loopcontrols"]
    )

    def raise_exception(message: str) -> NoReturn:
        raise jinja2.TemplateError(message)

    def tojson(value: object, ensure_ascii: bool = False, indent: int | None = None, **options: Any) -> str:
        # Jinja's own escapes <, > and & for HTML, which a model has never seen.
        return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, **options)

    environment.filters["tojson"] = tojson
    environment.globals["raise_exception"] = raise_exception
    environment.globals["strftime_now"] = lambda pattern: datetime.now().strftime(pattern)
    return environment.from_string(template)
