"""Chat templates: what models are sent, character for character."""

from __future__ import annotations

import sys
import time
from datetime import datetime
from typing import Any

import pytest

from pteron.errors import InputError, PteronError
from pteron.llm.chat import render

pytest.importorskip("jinja2")
from pteron.llm import chat_template  # imports jinja2

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


def test_the_last_message_is_continued() -> None:
    begun = [*MESSAGES, {"role": "assistant", "content": "Hello, "}]
    expected = render(MESSAGES, CHATML) + "Hello, "
    assert render(begun, CHATML, continue_final_message=True) == expected
    assert render(begun, continue_final_message=True).endswith("you\nAssistant: Hello, ")
    with pytest.raises(InputError, match="does not show the last message"):
        render(begun, "{{ messages[0].content }}", continue_final_message=True)
    for messages in ([], [{"role": "assistant", "content": [{"type": "text", "text": "a"}]}]):
        with pytest.raises(InputError, match="needs a last message with a text"):
            render(messages, CHATML, continue_final_message=True)


def test_without_a_template() -> None:
    assert render(MESSAGES) == "System: Be brief.\nUser: Hello <there> & you\nAssistant:"
    assert render(MESSAGES, add_generation_prompt=False) == "System: Be brief.\nUser: Hello <there> & you\n"


def test_tokens_and_variables_reach_the_template() -> None:
    template = (
        "{{ bos_token }}{{ tools | tojson }}{% if think is defined and think is false %}quick{% endif %}"
    )
    text = render([], template + "{{ eos_token }}", bos="<s>", eos="</s>", tools=[{"a": "ö<"}], think=False)
    assert text == '<s>[{"a": "ö<"}]quick</s>'


def test_a_template_may_refuse() -> None:
    template = "{{ raise_exception('roles must alternate') }}"
    with pytest.raises(InputError, match="roles must alternate"):
        render(MESSAGES, template)
    with pytest.raises(InputError, match="cannot render these messages"):
        render(MESSAGES, "{% for %}")


# Small versions of known models' templates: (template, variables, the prompt for MESSAGES and an answer).
FAMILIES: dict[str, tuple[str, dict[str, Any], str]] = {
    "smollm3": (
        """\
{%- if reasoning_mode is not defined %}
    {%- set reasoning_mode = "/think" if enable_thinking else "/no_think" %}
{%- endif %}
{%- for message in messages -%}
    {%- set content = message.content if message.content is string else "" -%}
    {%- if message.role == "assistant" -%}
        {% generation %}
        {{- "<|im_start|>assistant\\n" + content.lstrip("\\n") + "<|im_end|>\\n" -}}
        {% endgeneration %}
    {%- else -%}
        {{- "<|im_start|>" + message.role + "\\n" ~ content -}}
        {{- " " + reasoning_mode if message.role == "system" else "" -}}{{- "<|im_end|>\\n" -}}
    {%- endif -%}
{%- endfor -%}
{%- if add_generation_prompt -%}{{ "<|im_start|>assistant\\n" }}{%- endif -%}""",
        {"enable_thinking": False},
        "<|im_start|>system\nBe brief. /no_think<|im_end|>\n<|im_start|>user\nHello <there> & you<|im_end|>\n"
        "<|im_start|>assistant\nHi.<|im_end|>\n<|im_start|>assistant\n",
    ),
    "llama 3.1": (
        """\
{{- bos_token }}
{%- if not date_string is defined %}
    {%- if strftime_now is defined %}
        {%- set date_string = strftime_now("%Y") %}
    {%- endif %}
{%- endif %}
{%- if messages[0]['role'] == 'system' %}
    {%- set system_message = messages[0]['content']|trim %}
    {%- set messages = messages[1:] %}
{%- endif %}
{{- "<|start_header_id|>system<|end_header_id|>\\n\\n" }}
{{- "Today: " + date_string + "\\n" }}
{%- for t in tools %}
    {{- t | tojson(indent=4) }}
{%- endfor %}
{{- system_message }}
{{- "<|eot_id|>" }}
{%- for message in messages %}
    {%- if message.role == 'tool' %}{%- continue %}{%- endif %}
    {{- '<|start_header_id|>' + message['role'] + '<|end_header_id|>\\n\\n'+ message['content'] | trim }}
    {{- '<|eot_id|>' }}
{%- endfor %}""",
        {"bos": "<s>", "tools": [{"a": ["ü"]}]},
        f"<s><|start_header_id|>system<|end_header_id|>\n\nToday: {datetime.now():%Y}\n"
        '{\n    "a": [\n        "ü"\n    ]\n}Be brief.<|eot_id|>'
        "<|start_header_id|>user<|end_header_id|>\n\nHello <there> & you<|eot_id|>"
        "<|start_header_id|>assistant<|end_header_id|>\n\nHi.<|eot_id|>",
    ),
}


@pytest.mark.parametrize("family", FAMILIES)
def test_templates_of_known_models(family: str) -> None:
    template, variables, expected = FAMILIES[family]
    answer = {"role": "assistant", "content": "Hi."}
    assert render([*MESSAGES, answer], template, **variables) == expected


def test_a_missing_library_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "jinja2", None)
    with pytest.raises(PteronError, match=r"'jinja2': pip install .*\[llm\]."):
        render(MESSAGES, "another template")


HOSTILE = {
    "division": "{{ 1 // 0 }}",
    "overflow": "{{ 2.0 ** 100000 }}",
    "attribute": "{{ messages.append(1) }}",
    "missing": "{{ nothing.at.all }}",
    "import": "{% include 'other' %}",
    "syntax": "{% for x in %}",
    "recursion": "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}",
    "forking recursion": "{% macro f(n) %}{% if n %}{{ f(n-1) }}{{ f(n-1) }}{% endif %}{% endmacro %}"
    "{{ f(60) }}",
    "loops": "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}",
    "long range": "{% for a in range(10 ** 9) %}{% endfor %}",
    "class": "{{ ''.__class__.__mro__[1].__subclasses__() }}",
    "format": "{{ '{0.__class__.__init__.__globals__}'.format(messages) }}",
    "nested": "{{ " + "(" * 5000 + "1" + ")" * 5000 + " }}",
}


@pytest.mark.parametrize("template", HOSTILE.values(), ids=HOSTILE)
def test_a_hostile_template_is_an_error(template: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chat_template, "SECONDS_MAX", 0.3)
    began = time.monotonic()
    with pytest.raises(InputError, match="the chat template cannot render these messages: "):
        render(MESSAGES, template)
    assert time.monotonic() - began < 5
    assert render(MESSAGES, "{{ messages | length }}") == str(len(MESSAGES))


@pytest.mark.parametrize(
    "expression",
    [
        "'' | attr('__class__')",
        "raise_exception.__globals__",
        "cycler('a').reset.__func__",
        "joiner('a').__class__",
        "self.__init__",
        "'{x.__globals__}'.format_map({'x': raise_exception})",
        "[raise_exception] | map(attribute='__globals__') | first",
        "[''] | map('attr', '__class__') | first",
    ],
)
def test_a_template_sees_nothing_outside_its_sandbox(expression: str) -> None:
    assert render(MESSAGES, f"{{{{ {expression} }}}}") == ""


def test_a_template_has_no_global_that_runs_for_minutes() -> None:
    assert render(MESSAGES, "{{ lipsum is defined }} {{ range is defined }}") == "False True"


def test_a_slow_template_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chat_template, "SECONDS_MAX", 0.05)
    with pytest.raises(InputError, match=r"rendering takes longer than 0\.05 seconds"):
        render(MESSAGES, "{% for a in range(999) %}{% for b in range(999) %}{% endfor %}{% endfor %}")


def test_what_templates_do_still_works() -> None:
    """Each of these is in a template of a known model. Variables set in a generation block stay there, as in
    transformers; `break` may leave a loop from inside the block."""
    cases = {
        "{% for m in messages %}\n    {% if loop.first %}\n{{ m.role }}\n    {% endif %}\n{% endfor %}\n"
        "": "system\n",
        "{% set a = 1 %}{% generation %}{% set a = 2 %}{{ a }}{% endgeneration %}{{ a }}": "21",
        "{% for m in messages %}{% generation %}{{ m.role }}{% break %}{% endgeneration %}{% endfor %}"
        "": "system",
        "{{ messages[1:] | length }}": str(len(MESSAGES) - 1),
        "{{ messages[::-1][0].role }}": MESSAGES[-1]["role"],
        "{% set ns = namespace(found=false) %}{% for m in messages %}{% set ns.found = true %}{% endfor %}"
        "{{ ns.found }}": "True",
        "{{ messages | map(attribute='role') | unique | join(', ') }}": ", ".join(
            dict.fromkeys(message["role"] for message in MESSAGES)
        ),
        "{{ messages | selectattr('role', 'equalto', 'user') | list | length }}": str(
            sum(message["role"] == "user" for message in MESSAGES)
        ),
        "{% for k, v in {'a': 1}.items() %}{{ k ~ '=' ~ v }}{% endfor %}": "a=1",
        "{{ 'a</think>b'.split('</think>')[-1].lstrip('\\n') }}": "b",
        "{{ 'x%s' % 1 }}{{ '{}-{}'.format(1, 'b') }}": "x11-b",
        "{{ {'b': 1, 'a': [2]} | tojson(indent=2) }}": '{\n  "b": 1,\n  "a": [\n    2\n  ]\n}',
        "{% for m in messages %}{{ loop.index0 }}{{ '' if loop.last else ',' }}{% endfor %}": ",".join(
            map(str, range(len(MESSAGES)))
        ),
        "{% macro f(x) %}<{{ x }}>{% endmacro %}{{ f('a') ~ f('b') }}": "<a><b>",
        "{{ (messages[0].content | trim)[:2] is string and 'a' in ['a', 'b'] }}": "True",
        "{% for t in [1, [2, 3]] recursive %}{{ t if t is number else loop(t) }}{% endfor %}": "123",
        "{{ 'a\\nb' | indent(2) }}{{ 7 // 2 + 2 ** 3 }}": "a\n  b11",
        "{{ '-'.join('abc') ~ '{0[a]:>4}'.format({'a': 'b'}) ~ '%(a)3s' % {'a': 'b'} }}": "a-b-c   b  b",
        "{{ {'a': 1}.get('a') ~ [1, 1].count(1) ~ 'abc'.find('c') ~ 'a b'.split() }}": "122['a', 'b']",
    }
    for template, expected in cases.items():
        assert render(MESSAGES, template) == expected, template


@pytest.mark.parametrize("messages", [None, "hello", ["hello"], [None], {"role": "user"}, 7], ids=repr)
def test_messages_that_are_none(messages: Any) -> None:
    with pytest.raises(InputError, match="messages must be a list of mappings"):
        render(messages)
