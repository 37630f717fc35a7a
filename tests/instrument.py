"""Instruments a kernel: the same source, which also records the elements it accesses and its iterations.

Enters: a Module. Leaves: a Module with one more binding, `touched`, an array of counts:

    touched[0]       the most iterations of all loops that one invocation went through
    touched[1 + i]   the elements of binding i that were reached, in scalars: the greatest index plus one

`x[EXPR]` becomes `x[touch_x(u32(EXPR))]`, and a loop's body begins with `iterations++`. Both count in
variables of the invocation; a new `main` calls the old one and then merges them into `touched`.
"""

from __future__ import annotations

import re
from dataclasses import replace

from pteron.wgsl import Binding, Module

_ENTRY = re.compile(r"(@compute\s+@workgroup_size\([^)]*\))\s*fn main\((.*?)\)\s*\{", re.DOTALL)
_PARAMETER = re.compile(r"@builtin\(\w+\)\s*(\w+)\s*:\s*[\w<>]+")
_LOOP = re.compile(r"\b(?:(?:for|while)\s*\(|loop\s*\{)")
_HUGE = "0xffffffffu"  # what an index counts as that no buffer has, such as a negative one


def instrument(module: Module) -> Module:
    """The module that notes what it does; it has bounds checks, whatever the module states."""
    text = re.sub(r"//[^\n]*", "", module.source)
    text = _count_loops(text)
    for binding in module.bindings:
        assert f"&{binding.name}" not in text, f"{module.kernel} takes the address of {binding.name}"
        text = _touch(text, binding.name)
    index = 1 + max((*(binding.index for binding in module.bindings), module.params_index or 0))
    text = _ENTRY.sub(lambda match: _entry(match, module), text) + _notes(module, index)
    bindings = (*module.bindings, Binding("touched", index, "read_write", "u32"))
    return replace(module, source=text, bindings=bindings, bounds_checks=True)


def _count_loops(text: str) -> str:
    """Each loop's body with a count at its start."""
    places = []
    for match in _LOOP.finditer(text):
        end = match.end() - 1
        places.append(end + 1 if text[end] == "{" else text.index("{", _closing(text, end)) + 1)
    for place in sorted(places, reverse=True):
        text = f"{text[:place]} iterations++; {text[place:]}"
    return text


def _touch(text: str, name: str) -> str:
    """Every index into a binding, also those inside others, passed through its note."""
    opening = re.compile(rf"(?<![\w.]){name}\[")
    at = 0
    while match := opening.search(text, at):
        start, end = match.end(), _closing(text, match.end() - 1)
        text = f"{text[:start]}touch_{name}(u32({text[start:end]})){text[end:]}"
        at = start
    return text


def _closing(text: str, opening: int) -> int:
    """Where the bracket that opens at a place is closed."""
    depth = 0
    for place in range(opening, len(text)):
        depth += (text[place] in "([") - (text[place] in ")]")
        if depth == 0:
            return place
    raise ValueError(f"no bracket closes {text[opening : opening + 40]!r}")


def _entry(match: re.Match[str], module: Module) -> str:
    """The new entry point, and the head of the old one, now a plain function."""
    attributes, parameters = match.groups()
    names = ", ".join(_PARAMETER.findall(parameters))
    merges = [f"atomicMax(&touched[{i + 1}], most_{b.name});" for i, b in enumerate(module.bindings)]
    plain = re.sub(r"@builtin\(\w+\)\s*", "", parameters)
    body = "\n  ".join([f"measured({names});", "atomicMax(&touched[0], iterations);", *merges])
    return f"{attributes}\nfn main({parameters}) {{\n  {body}\n}}\n\nfn measured({plain}) {{"


def _notes(module: Module, index: int) -> str:
    """The declarations that the new text needs."""
    lines = [
        f"@group(0) @binding({index}) var<storage, read_write> touched: array<atomic<u32>>;",
        "var<private> iterations: u32;",
    ]
    for binding in module.bindings:
        found = re.search(rf"\b{binding.name}\s*:\s*array<(?:vec(\d)<)?", module.source)
        width = int(found[1] or 1) if found else 1  # scalars per element
        reached = f"select({width}u * (index + 1u), {_HUGE}, index >= 0x3fffffffu)"
        lines += [
            f"var<private> most_{binding.name}: u32;",
            f"fn touch_{binding.name}(index: u32) -> u32 {{",
            f"  most_{binding.name} = max(most_{binding.name}, {reached});",
            "  return index;",
            "}",
        ]
    return "\n" + "\n".join(lines) + "\n"
