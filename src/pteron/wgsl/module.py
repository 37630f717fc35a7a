"""Kernel -> Module: the complete WGSL text, and its bindings, Params and statements, read from the text.

Enters: a Kernel (file name and replaced declarations). Leaves: the source to compile, its bindings in
order, the layout of its Params, its workgroup size.

link.py puts a kernel's files together. `//!` lines state loops and extents (statements.py) or mark loops to
unroll (unroll.py). Bindings that no function uses are removed, so an absent optional operand costs nothing.

Files without `import` are of the former kind: `//! use NAME` includes lib/NAME.wgsl, the declaration
use_NAME replaces it by another library, and any const, alias or fn may be replaced.

`enable f16;` is added if an element is a half float. `source` is for wgpu, `portable_source` for browsers,
which need `enable subgroups;`: wgpu rejects that line."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cache
from itertools import pairwise
from operator import index
from typing import Literal, cast

from pteron.wgsl.link import Linked as Linked
from pteron.wgsl.link import linked as linked
from pteron.wgsl.link import with_overrides
from pteron.wgsl.statements import Statements, read_statements
from pteron.wgsl.unroll import unroll, whole_number

Access = Literal["read", "read_write", "uniform"]
_NONE: Mapping[str, object] = {}
UNIFORMS_MAX = 12  # uniform buffers of a kernel that every device takes

_BINDING = re.compile(
    r"@group\(0\)\s*@binding\((\d+)\)\s*var<(?:storage,\s*)?(read|read_write|uniform)>\s*(\w+)\s*:\s*([^;]+);\n?"
)
_ELEMENT = re.compile(r"array<(?:vec[234]<)?(\w+)>*")
_SIZED = re.compile(r"array<vec4<\w+>,([^,>]+)>")
_PARAMS = re.compile(r"struct Params \{(.*?)\}", re.DOTALL)
_FIELD = re.compile(r"(\w+)\s*:\s*([^\n]+?),?\s*(?://[^\n]*)?$", re.MULTILINE)
_WORKGROUP = re.compile(r"@workgroup_size\(([^)]*)\)")
_SIMPLE = re.compile(r"^((?:alias|const) (\w+)(?:\s*:\s*\w+)? = )([^;]+);", re.MULTILINE)
_FUNCTION = re.compile(r"^(fn (\w+)\([^{]*)(?:\{[^\n]*\}|\{\n.*?^\})$", re.MULTILINE | re.DOTALL)
_SUBGROUP = re.compile(r"\bsubgroup[A-Z]\w*\(")
_ALIAS = re.compile(r"^alias (\w+) =", re.MULTILINE)
_CONST = re.compile(r"^const (\w+)(?:\s*:\s*\w+)? = ([^;]+);", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Binding:
    """A buffer that the kernel reads or writes, by the name it has in WGSL."""

    name: str
    index: int
    access: Access
    element: str  # the scalar type of an element, often an alias that follows the bound tensor
    bytes: int = 0  # of a uniform array of constant length; 0: of the bound buffer's length


@dataclass(frozen=True, slots=True)
class Field:
    """A member of Params: `count` scalars of type u32, i32 or f32, from byte `offset` on."""

    name: str
    scalar: str
    count: int
    offset: int


@dataclass(frozen=True, slots=True)
class Module:
    """A kernel's finished source and what it declares."""

    kernel: Kernel
    source: str
    bindings: tuple[Binding, ...]  # buffers only; Params is apart
    params_index: int | None
    fields: tuple[Field, ...]
    params_size: int
    workgroup: tuple[int, int, int]
    bounds_checks: bool  # False if it states the extents of all its bindings
    constants: Mapping[str, int] = field(default_factory=dict)  # those that are whole numbers
    statements: Statements = field(default_factory=Statements)

    @property
    def portable_source(self) -> str:
        """The source as browsers take it."""
        is_enabled = _SUBGROUP.search(_without_comments(self.source)) is not None
        return f"enable subgroups;\n{self.source}" if is_enabled else self.source

    @property
    def clamped_source(self) -> str:
        """`portable_source` where no index into a storage buffer exceeds its length, for compilers without
        bounds checks. Only for kernels that do not try to get around it."""
        text = self.portable_source
        for binding in self.bindings:
            if binding.access != "uniform":
                text = _clamp(text, binding.name)
        return text


@dataclass(frozen=True, slots=True)
class Outline:
    """A kernel's text and its bindings."""

    text: str
    bindings: tuple[Binding, ...]  # buffers only
    params_index: int | None
    aliases: frozenset[str]
    constants: Mapping[str, int]  # those that are whole numbers


@cache
def outline(kernel: Kernel) -> Outline:
    """What the kernel binds. An unknown file is a FileNotFoundError, an unknown declaration a ValueError."""
    text = _drop_unused_bindings(_text_of(kernel))
    found = [
        (int(index), cast(Access, access), name, kind) for index, access, name, kind in _BINDING.findall(text)
    ]
    constants = _constants(text)
    _check_uniforms(kernel, found)
    return Outline(
        text=text,
        bindings=tuple(
            _binding(name, index, access, kind, constants)
            for index, access, name, kind in found
            if kind != "Params"
        ),
        params_index=next((index for index, _, _, kind in found if kind == "Params"), None),
        aliases=frozenset(_ALIAS.findall(text)),
        constants=constants,
    )


@cache
def compose(kernel: Kernel) -> Module:
    """The kernel's module, its errors those of its outline."""
    outlined = outline(kernel)
    bindings, constants = outlined.bindings, outlined.constants
    names = [binding.name for binding in bindings]
    statements, text = read_statements(outlined.text, names, constants)
    if re.search(r"^alias \w+ = f16;", text, re.MULTILINE):
        text = "enable f16;\n" + text
    fields, params_size = _layout(text)
    return Module(
        kernel=kernel,
        source=unroll(text, constants),
        bindings=bindings,
        params_index=outlined.params_index,
        fields=fields,
        params_size=params_size,
        workgroup=_workgroup(kernel, text, constants),
        bounds_checks=statements.reach is None,
        constants=constants,
        statements=statements,
    )


def _text_of(kernel: Kernel) -> str:
    """The kernel's files as one text, with the values that its launch gives."""
    given = dict(kernel.declarations)
    swaps = tuple((name, text) for name, text in kernel.declarations if name.startswith("use_"))
    formulas = tuple((name, text) for name, text in kernel.declarations if name.islower())
    names = kernel.operands.union(
        name for name, text in kernel.declarations if text == "true" or name.islower()
    )
    files = linked(kernel.package, kernel.name, names, formulas, swaps)
    text = with_overrides(kernel.name, files.text, given)
    rest = {name: text for name, text in given.items() if name not in files.given and name not in dict(swaps)}
    if not files.is_former and (unknown := rest.keys() - _ALIAS.findall(text)):
        listed = ", ".join(sorted(unknown))
        raise ValueError(f"kernel {kernel.name} has no override, alias or formula named {listed}")
    return _replace(kernel, text, rest) if rest else text


def _replace(kernel: Kernel, text: str, replaced: Mapping[str, str]) -> str:
    """The text with other declarations of these names."""
    found = set[str]()

    def simple(match: re.Match[str]) -> str:
        start, name, value = match.groups()
        if name not in replaced:
            return match[0]
        found.add(name)
        unsigned = "u" if replaced[name].isdecimal() and value.endswith("u") else ""
        return f"{start}{replaced[name]}{unsigned};"

    def function(match: re.Match[str]) -> str:
        head, name = match.groups()
        if name not in replaced or name in found:
            return match[0]
        found.add(name)
        body = replaced[name] if ";" in replaced[name] else f"return {replaced[name]};"
        return f"{head}{{ {body} }}"

    text = _FUNCTION.sub(function, _SIMPLE.sub(simple, text))
    for name in replaced:
        if name not in found:
            raise ValueError(f"kernel {kernel.name} declares no alias, const or fn named {name!r}")
    return text


def _clamp(text: str, name: str) -> str:
    """The text with every index of an array limited to the array's length."""
    parts, done = list[str](), 0
    for found in re.finditer(rf"(?<![\w.]){name}\[", text):
        if found.start() < done:
            continue  # inside an index that is done
        depth, end = 1, found.end()
        while depth:
            depth += {"[": 1, "]": -1}.get(text[end], 0)
            end += 1
        index = _clamp(text[found.end() : end - 1], name)
        parts.append(f"{text[done : found.end()]}min(u32({index}), arrayLength(&{name}) - 1u)]")
        done = end
    return "".join(parts) + text[done:]


def _drop_unused_bindings(text: str) -> str:
    code = _without_comments(text)
    for match in list(_BINDING.finditer(text)):
        if _mentions(code, match[3]) == 1:
            text = text.replace(match[0], "")
    return text


def _mentions(code: str, name: str) -> int:
    """How often a name occurs in a text as a word; faster than a regular expression."""

    def is_word(character: str) -> bool:
        return character.isalnum() or character == "_"

    around = pairwise(code.split(name))
    return sum(not (is_word(before[-1:]) or is_word(after[:1])) for before, after in around)


def _without_comments(text: str) -> str:
    return re.sub(r"//[^\n]*", "", text)


def _check_uniforms(kernel: Kernel, found: list[tuple[int, Access, str, str]]) -> None:
    """Params come before all uniform arrays: Mesa 22.3's software adapter notes which uniforms decide
    branches in a table with room for the first three uniform buffers, and writes past it for others."""
    uniform = sorted((index, kind) for index, access, _, kind in found if access == "uniform")
    if len(uniform) > UNIFORMS_MAX:
        raise ValueError(f"kernel {kernel.name} binds {len(uniform)} uniform buffers, at most {UNIFORMS_MAX}")
    if any(kind == "Params" for _, kind in uniform[1:]):
        raise ValueError(f"kernel {kernel.name} binds a uniform array before its Params")


def _binding(name: str, index: int, access: Access, kind: str, constants: Mapping[str, int]) -> Binding:
    element, sized = _ELEMENT.match(kind), _SIZED.fullmatch(kind)
    size = 16 * whole_number(sized[1], constants) if sized else 0
    return Binding(name, index, access, element[1] if element else kind, size)


def _layout(text: str) -> tuple[tuple[Field, ...], int]:
    """WGSL's own rules for a uniform struct of scalars, vectors and arrays of vec4."""
    match = _PARAMS.search(text)
    if match is None:
        return (), 0
    fields, offset = [], 0
    for name, kind in _FIELD.findall(match[1]):
        scalar, count, align = _field_type(kind)
        offset = -(-offset // align) * align
        fields.append(Field(name, scalar, count, offset))
        offset += 4 * count
    return tuple(fields), -(-offset // 16) * 16


def _field_type(kind: str) -> tuple[str, int, int]:
    """(scalar type, number of scalars, alignment in bytes)."""
    if match := re.fullmatch(r"array<vec4<(\w+)>,\s*(\d+)>", kind):
        return match[1], 4 * int(match[2]), 16
    if match := re.fullmatch(r"vec([234])<(\w+)>", kind):
        return match[2], int(match[1]), 8 if match[1] == "2" else 16
    return kind, 1, 4


def _constants(text: str) -> dict[str, int]:
    """The values of constants that are whole numbers, in the order of their declaration."""
    values: dict[str, int] = {}
    for name, expression in _CONST.findall(text):
        try:
            values[name] = whole_number(expression, values)
        except ValueError:
            continue  # a number with a fraction, a vector, a boolean
    return values


def _workgroup(kernel: Kernel, text: str, constants: Mapping[str, int]) -> tuple[int, int, int]:
    match = _WORKGROUP.search(text)
    if match is None:
        raise ValueError(f"kernel {kernel.name} has no @workgroup_size")
    sizes = (term.strip().rstrip("u") for term in match[1].split(","))
    x, y, z = (*(constants[size] if size in constants else int(size) for size in sizes), 1, 1)[:3]
    return x, y, z


@dataclass(frozen=True, slots=True)
class Kernel:
    """`Kernel(package, "binary", combine="a * b")` is the package's binary.wgsl with `fn combine` replaced.

    A declaration is an `alias` (its type), a `const` (its value) or a `fn` (an expression to return,
    or a body of statements). Numbers and booleans are written as the constant that they replace is.
    """

    package: str
    name: str
    declarations: tuple[tuple[str, str], ...]
    operands: frozenset[str]  # that a launch binds: conditions name them

    def __init__(
        self, package: str, name: str, operands: frozenset[str] = frozenset(), /, **declarations: object
    ) -> None:
        texts = tuple(sorted((key, _text(value)) for key, value in declarations.items()))
        self._set(package, name, texts, operands)

    def _set(
        self, package: str, name: str, declarations: tuple[tuple[str, str], ...], operands: frozenset[str]
    ) -> None:
        object.__setattr__(self, "package", package)
        object.__setattr__(self, "name", name)
        object.__setattr__(self, "declarations", declarations)
        object.__setattr__(self, "operands", operands)

    def specialise(self, **declarations: object) -> Kernel:
        """The same kernel with further declarations replaced."""
        return Kernel(self.package, self.name, self.operands, **{**dict(self.declarations), **declarations})

    def launched(self, operands: Iterable[str], overrides: Mapping[str, object] = _NONE) -> Kernel:
        """The same kernel for a launch that binds these operands and gives these overrides."""
        declarations = self.declarations
        if overrides:
            texts = ((key, _text(value)) for key, value in overrides.items())
            declarations = tuple(sorted({**dict(declarations), **dict(texts)}.items()))
        made = Kernel.__new__(Kernel)
        made._set(self.package, self.name, declarations, frozenset(operands))
        return made

    def __str__(self) -> str:
        swaps = ", ".join(f"{name}={text}" for name, text in self.declarations)
        return f"{self.name}({swaps})" if swaps else self.name


@dataclass(frozen=True, slots=True)
class Kernels:
    """The kernels beside a module: `kernel = Kernels(__name__)`, then `kernel("binary", combine="a * b")`."""

    module: str

    def __call__(self, name: str, **declarations: object) -> Kernel:
        return Kernel(self.module.rpartition(".")[0], name, **declarations)


LIVE = "\u2032"  # a prime, behind the digits of a live integer that is printed


def _text(value: object) -> str:
    """A declaration as text. A live integer is decided; as a part of a text it would stay as it is now."""
    if isinstance(value, bool):
        return str(value).lower()
    text = str(index(value)) if hasattr(value, "__index__") else str(value)
    if LIVE in text:
        raise ValueError(f"{text}: the text of a kernel cannot contain a live integer")
    return text
