"""Messages -> a prompt in the form that the model was trained on, by the model's chat template.

    render([{"role": "user", "content": "Hello"}], tokenizer.chat_template)

Templates run in a sandbox, their loops under a time limit (chat_template.py).
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any, TypeAlias

from pteron.errors import InputError
from pteron.extras import need

Message: TypeAlias = Mapping[str, Any]

_END = "\ue0f0"  # of a message that is continued; a character that no text has

# For models without a template: a line per message.
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
    continue_final_message: bool = False,
    **variables: object,
) -> str:
    """The prompt for `messages`, each with a "role" and a "content".

    `bos` and `eos` are the texts of these tokens. `add_generation_prompt` opens the assistant's turn, and
    `continue_final_message` leaves the last message open instead, so that the answer goes on with it. The
    template receives all other variables: `tools`, `enable_thinking`, ...
    """
    is_list = isinstance(messages, Sequence) and not isinstance(messages, str)
    if not is_list or not all(isinstance(message, Mapping) for message in messages):
        raise InputError('messages must be a list of mappings, as [{"role": "user", "content": "Hello"}]')
    need("jinja2", "rendering a chat template")
    from pteron.llm import chat_template

    if continue_final_message:
        messages, add_generation_prompt = [*messages[:-1], _marked(messages)], False
    before = chat_template.deadline.set(time.monotonic() + chat_template.SECONDS_MAX)
    try:
        text: str = _compile(template or PLAIN_TEMPLATE).render(
            messages=[dict(message) for message in messages],
            bos_token=bos,
            eos_token=eos,
            add_generation_prompt=add_generation_prompt,
            **variables,
        )
    except Exception as error:  # a template's code can raise anything
        is_ours = type(error).__module__.startswith("jinja2")
        detail = str(error) if is_ours else f"{type(error).__name__}: {error}"
        raise InputError(f"the chat template cannot render these messages: {detail}") from error
    finally:
        chat_template.deadline.reset(before)
    if not continue_final_message:
        return text
    begun, mark, _ = text.rpartition(_END)
    if not mark:
        raise InputError("the chat template does not show the last message, so it cannot be continued")
    return begun


def _marked(messages: Sequence[Message]) -> Message:
    """The last message, with a mark where its text ends."""
    content = messages[-1].get("content") if messages else None
    if not isinstance(content, str):
        raise InputError("continue_final_message needs a last message with a text")
    return {**messages[-1], "content": content + _END}


@lru_cache(maxsize=8)
def variables_of(template: str | None) -> frozenset[str]:
    """The variables that a template reads; empty for a template that Jinja cannot parse."""
    need("jinja2", "rendering a chat template")
    from jinja2 import TemplateError
    from jinja2.meta import find_undeclared_variables

    from pteron.llm.chat_template import ChatTemplateEnvironment

    try:
        parsed = ChatTemplateEnvironment().parse(template or PLAIN_TEMPLATE)
        return frozenset(find_undeclared_variables(parsed))
    except (TemplateError, RecursionError):
        return frozenset()


@lru_cache(maxsize=8)
def _compile(template: str) -> Any:
    from pteron.llm.chat_template import ChatTemplateEnvironment

    return ChatTemplateEnvironment().from_string(template)
