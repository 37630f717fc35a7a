"""Chat templates: what models are sent, character for character."""

from __future__ import annotations

import sys

import pytest

from pteron.errors import InputError, PteronError
from pteron.llm.chat import render

pytest.importorskip("jinja2")

MESSAGES = [
    {"role": "system", "content": "Be brief."},
    {"role": "user", "content": "Hello <there> & you"},
]
CHATML = """\
{% for message in messages %}
    {{- '<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>' + '\\n' }}
{%- endfor %}
{% if add_generation_prompt %}
    {{- '<|im_start|>assistant\\n' -}}
{% endif %}"""


def test_chatml() -> None:
    turns = "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\nHello <there> & you<|im_end|>\n"
    assert render(MESSAGES, CHATML) == turns + "<|im_start|>assistant\n"
    assert render(MESSAGES, CHATML, add_generation_prompt=False) == turns


def test_without_a_template() -> None:
    assert render(MESSAGES) == "System: Be brief.\nUser: Hello <there> & you\nAssistant:"
    assert render(MESSAGES, add_generation_prompt=False) == "System: Be brief.\nUser: Hello <there> & you\n"


def test_tokens_and_variables_reach_the_template() -> None:
    template = "{{ bos_token }}{{ tools | tojson }}{% if not think %}quick{% endif %}{{ eos_token }}"
    text = render([], template, bos="<s>", eos="</s>", tools=[{"name": "größe<"}], think=False)
    assert text == '<s>[{"name": "größe<"}]quick</s>'


def test_blocks_leave_no_layout_behind() -> None:
    template = (
        "{% for m in messages %}\n    {% if loop.first %}\n{{ m.role }}\n    {% endif %}\n{% endfor %}\n"
    )
    assert render(MESSAGES, template) == "system\n"


def test_loops_can_stop() -> None:
    template = "{% for m in messages %}{{ m.role }}{% break %}{% endfor %}"
    assert render(MESSAGES, template) == "system"


def test_a_template_may_refuse() -> None:
    template = "{{ raise_exception('roles must alternate') }}"
    with pytest.raises(InputError, match="roles must alternate"):
        render(MESSAGES, template)
    with pytest.raises(InputError, match="does not take these messages"):
        render(MESSAGES, "{% for %}")


def test_a_template_knows_the_date() -> None:
    assert render([], "{{ strftime_now('%Y') }}").isdigit()


def test_a_template_cannot_reach_out() -> None:
    with pytest.raises(InputError):
        render(MESSAGES, "{{ messages.__class__.__mro__[1].__subclasses__() }}")
    with pytest.raises(InputError):
        render(MESSAGES, "{{ messages.append(1) }}")


def test_a_missing_library_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "jinja2", None)
    with pytest.raises(PteronError, match=r"'jinja2': pip install 'pteron\[llm\]'"):
        render(MESSAGES, "another template")
