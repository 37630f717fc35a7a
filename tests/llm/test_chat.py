"""Chat templates: what models are sent, character for character."""

from __future__ import annotations

import sys
import time
import tracemalloc
from typing import Any

import pytest

from pteron.errors import InputError, PteronError
from pteron.llm.chat import render
from pteron.llm.templates import budget

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


def sixty_times(first: str, next: str) -> str:
    """A template that lets n.x be the next of it again and again."""
    loop = f"{{% for a in range(60) %}}{{% set n.x = {next} %}}{{% endfor %}}"
    return f"{{% set n = namespace(x={first}) %}}{loop}{{{{ n.x }}}}"


HOSTILE = {
    "division": "{{ 1 // 0 }}",
    "overflow": "{{ 2.0 ** 100000 }}",
    "attribute": "{{ messages.append(1) }}",
    "missing": "{{ nothing.at.all }}",
    "import": "{% include 'other' %}",
    "syntax": "{% for x in %}",
    "recursion": "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}",
    "recursive text": "{% macro f(x) %}{{ f(x ~ x) }}{% endmacro %}{{ f('ab') }}",
    "forking recursion": "{% macro f(n) %}{% if n %}{{ f(n-1) }}{{ f(n-1) }}{% endif %}{% endmacro %}"
    "{{ f(60) }}",
    "loops": "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}",
    "recursive loops": "{% for a in range(2) recursive %}{{ loop(range(99999)) }}{% endfor %}",
    "long range": "{% for a in range(10 ** 9) %}{% endfor %}",
    "power": "{{ 10 ** 99999999 }}",
    "squares": sixty_times("10", "n.x * n.x"),
    "repeated text": "{{ 'a' * 10 ** 9 }}",
    "repeated list": "{{ ([1] * 10 ** 9) | length }}",
    "doubled by ~": sixty_times("'ab'", "n.x ~ n.x"),
    "doubled by +": sixty_times("'ab'", "n.x + n.x"),
    "doubled lists": sixty_times("[1]", "[n.x, n.x]"),
    "doubled dicts": sixty_times("1", "{1: n.x, 2: n.x}"),
    "doubled by dict": sixty_times("1", "dict(a=n.x, b=n.x)"),
    "doubled namespaces": sixty_times("namespace()", "namespace(a=n.x, b=n.x)"),
    "doubled blocks": "{% set n = namespace(x='ab') %}{% for a in range(60) %}"
    "{% set y %}{{ n.x }}{{ n.x }}{% endset %}{% set n.x = y %}{% endfor %}",
    "doubled by replace": sixty_times("'a'", "n.x.replace('a', 'aa')"),
    "doubled by filter": sixty_times("'a'", "n.x | replace('a', 'aa')"),
    "doubled by join": sixty_times("'a'", "[n.x, n.x] | join"),
    "joined by much": "{{ ('a' * 9999999).join(range(99999) | map('string') | list) }}",
    "many copies": "{% set n = namespace(x=[]) %}{% set t = 'a' * 9999999 %}{% for a in range(999) %}"
    "{% set n.x = n.x + [t[1:]] %}{% endfor %}",
    "much text": "{% for a in range(99999) %}" + "a" * 9999 + "{% endfor %}",
    "centred": "{{ 'a' | center(10 ** 9) }}",
    "centred by method": "{{ 'a'.center(10 ** 9) }}",
    "filled": "{{ 'a'.zfill(10 ** 9) }}",
    "percent width": "{{ '%999999999d' % 1 }}",
    "percent star": "{{ '%*d' % (999999999, 1) }}",
    "format width": "{{ '{:999999999}'.format(1) }}",
    "format nested": "{{ '{:{}}'.format(1, 999999999) }}",
    "format item": "{{ 'x{:999999999}'['format'](1) }}",
    "date width": "{{ strftime_now('%999999999Y') }}",
    "indent": "{{ ('\\n' * 999999) | indent(999999) }}",
    "json indent": "{{ [[[[1]]]] | tojson(indent=999999999) }}",
    "json separators": "{{ range(99999) | list | tojson(separators=('a' * 9999, 'b')) }}",
    "lipsum": "{{ lipsum(n=10 ** 6) }}",
    "attr": "{{ ''|attr('__class__') }}",
    "class": "{{ ''.__class__.__mro__[1].__subclasses__() }}",
    "nested": "{{ " + "(" * 5000 + "1" + ")" * 5000 + " }}",
    "nots": "{{ " + "not " * 50000 + "1 }}",
    "long": "{{ 1 }}" * 99999,
}


@pytest.mark.parametrize("template", HOSTILE.values(), ids=HOSTILE)
def test_a_hostile_template_is_an_error(template: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(budget, "SECONDS_MAX", 1.0)
    began = time.monotonic()
    with pytest.raises(InputError, match="the chat template does not take these messages: "):
        render(MESSAGES, template)
    assert time.monotonic() - began < 5
    assert render(MESSAGES, "{{ messages | length }}") == str(len(MESSAGES))


# What would take a gigabyte before anybody weighs it.
LARGE = {
    "joined texts": "{{ ('a' * 99999).join('b' * 99999) }}",
    "joined rows": "{{ ('a' * 99999).join(range(99999) | map('string')) }}",
    "joined keys": "{{ ('a' * 499999).join({" + ",".join(f"'{n}': 1" for n in range(2000)) + "}) }}",
    "bytes": "{{ (1).to_bytes(10 ** 9, 'big') | length }}",
    "safe texts": "{{ ('a' | safe).center(10 ** 9) }}",
    "escaped texts": "{{ ('a' | e).zfill(10 ** 9) }}",
    "escaping": "{% autoescape true %}{% set x %}a{% endset %}{{ x.ljust(10 ** 9) }}{% endautoescape %}",
    "percent name": "{{ '%((a))999999999d' % {'(a)': 1} }}",
    "format name": "{{ '{0[}]:999999999}'.format({'}': 1}) }}",
    "format of a variable": "{% set f = 'x{:999999999}'.format %}{{ f(1) }}",
    "indented by other line ends": "{{ ('\\r' * 499999) | indent(64, blank=true) }}",
    "hoarded rows": "{% set n = namespace(x=0) %}{% for i in range(999) %}{% set m = namespace() %}"
    "{% set m.v = range(99999) | list %}{% set m.p = n.x %}{% set n.x = m %}{% endfor %}",
    "filled rows": "{{ dict.fromkeys(range(99999), 1) | length }}",
    "dates": "{{ strftime_now('%99Y' * 99999) }}",
}


@pytest.mark.parametrize("template", LARGE.values(), ids=LARGE)
def test_nothing_large_is_made(template: str) -> None:
    tracemalloc.start()
    try:
        with pytest.raises(InputError, match="the chat template does not take these messages: "):
            render(MESSAGES, template)
        assert tracemalloc.get_traced_memory()[1] < 1 << 27
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize(
    ("template", "expected"),
    [
        ("{{ ('<a>' | safe) ~ ('<' | e) ~ (\"'\" | escape) }}", "<a>&lt;&#39;"),
        ("{{ ', '.join(messages | map(attribute='role')) }}", ", ".join(m["role"] for m in MESSAGES)),
        ("{{ '-'.join('abc') ~ '{0[a]:>4}'.format({'a': 'b'}) ~ '%(a)3s' % {'a': 'b'} }}", "a-b-c   b  b"),
        ("{{ {'a': 1}.get('a') ~ [1, 1].count(1) ~ 'abc'.find('c') ~ 'a b'.split() }}", "122['a', 'b']"),
    ],
)
def test_what_is_bounded_still_works(template: str, expected: str) -> None:
    assert render(MESSAGES, template) == expected


def test_a_slow_template_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(budget, "SECONDS_MAX", 0.05)
    with pytest.raises(InputError, match=r"it takes longer than 0\.05 seconds"):
        render(MESSAGES, "{% for a in range(999) %}{% for b in range(999) %}{% endfor %}{% endfor %}")


def test_what_templates_do_still_works() -> None:
    """Each of these is in a template of a known model."""
    cases = {
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
    }
    for template, expected in cases.items():
        assert render(MESSAGES, template) == expected, template


@pytest.mark.parametrize("messages", [None, "hello", ["hello"], [None], {"role": "user"}, 7], ids=repr)
def test_messages_that_are_none(messages: Any) -> None:
    with pytest.raises(InputError, match="messages are a list of mappings"):
        render(messages)
