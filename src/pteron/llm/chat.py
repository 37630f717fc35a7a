"""Messages -> the prompt a model was trained on, by the chat template it came with.

    render([{"role": "user", "content": "Hello"}], tokenizer.chat_template)

Templates are Jinja programs written by strangers: they run in a sandbox, within a budget of steps, time and
text, with the few extras that Hugging Face's own rendering gives them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any, TypeAlias

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
    is_list = isinstance(messages, Sequence) and not isinstance(messages, str)
    if not is_list or not all(isinstance(message, Mapping) for message in messages):
        raise InputError('messages are a list of mappings, as [{"role": "user", "content": "Hello"}]')
    need("jinja2", "rendering a chat template")
    from pteron.llm.templates.budget import Budget, current

    before = None
    try:
        compiled = _compile(template or PLAIN_TEMPLATE)
        before = current.set(Budget())
        text: str = compiled.render(
            messages=[dict(message) for message in messages],
            bos_token=bos,
            eos_token=eos,
            add_generation_prompt=add_generation_prompt,
            **variables,
        )
    except Exception as error:  # whatever its author's code runs into
        raise InputError(f"the chat template does not take these messages: {_said(error)}") from error
    finally:
        if before is not None:
            current.reset(before)
    return text


@lru_cache(maxsize=8)
def variables_of(template: str | None) -> frozenset[str]:
    """The names that a template takes from outside; none, of one that Jinja does not read."""
    need("jinja2", "rendering a chat template")
    from jinja2 import TemplateError
    from jinja2.meta import find_undeclared_variables

    from pteron.llm.templates.sandbox import BoundedEnvironment

    try:
        return frozenset(find_undeclared_variables(BoundedEnvironment().parse(template or PLAIN_TEMPLATE)))
    except TemplateError:
        return frozenset()


@lru_cache(maxsize=8)
def _compile(template: str) -> Any:
    from pteron.llm.templates.sandbox import BoundedEnvironment

    return BoundedEnvironment().compile_bounded(template)


def _said(error: Exception) -> str:
    """What went wrong; by its kind too, where Python says it."""
    is_ours = type(error).__module__.startswith(("jinja2", "pteron"))
    return f"{error}" if is_ours else f"{type(error).__name__}: {error}"
