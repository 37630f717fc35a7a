"""Kernel -> Module: the complete WGSL text, and its bindings, Params and statements, read from the text.

Enters: a Kernel: a file's name, the operands that a launch binds, and what else it gives. Leaves: the source
to compile, its bindings in order, the layout of its Params, its workgroup size.

link.py puts a kernel's files together. `//!` lines state loops and extents (statements.py) or mark loops to
unroll (unroll.py).

`enable f16;` is added if an element is a half float. `source` is for wgpu, `portable_source` for browsers,
which need `enable subgroups;`: wgpu rejects that line."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cache
from operator import index
from typing import Literal, cast

from pteron.wgsl.link import linked, with_overrides
from pteron.wgsl.statements import Statements, read_statements
from pteron.wgsl.unroll import unroll, whole_number

Access = Literal["read", "read_write", "uniform"]
_NONE: Mapping[str, object] = {}
UNIFORMS_MAX = 12  # uniform buffers of a kernel that every device takes

_BINDING = re.compile(
    r"@group\(0\)\s*@binding\((\d+)\)\s*var<(?:storage,\s*)?(read|read_write|uniform)>\s*(\w+)\s*:\s*([^;]+);\n?"
)
_ELEMENT = re.compile(r"array<(?:vec[234]<)?(\w+)>*")
_OTHER = re.compile(r"(?:vec[234]<)?((?<=<)\w+|[A-Z]\w*)>?")  # another alias, or the element type of a vector
_SIZED = re.compile(r"array<vec4<\w+>,([^,>]+)>")
_PARAMS = re.compile(r"struct Params \{(.*?)\}", re.DOTALL)
_FIELD = re.compile(r"(\w+)\s*:\s*([^\n]+?),?\s*(?://[^\n]*)?$", re.MULTILINE)
_WORKGROUP = re.compile(r"@workgroup_size\(([^)]*)\)")
_SUBGROUP = re.compile(r"\bsubgroup[A-Z]\w*\(")
_ALIAS = re.compile(r"^alias (\w+) = ([^;]+);", re.MULTILINE)
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
    text = _text_of(kernel)
    found = [
        (int(index), cast(Access, access), name, kind) for index, access, name, kind in _BINDING.findall(text)
    ]
    constants, aliases = _constants(text), dict(_ALIAS.findall(text))
    _check_uniforms(kernel, found)
    return Outline(
        text=text,
        bindings=tuple(
            _binding(name, index, access, kind, constants, aliases)
            for index, access, name, kind in found
            if kind != "Params"
        ),
        params_index=next((index for index, _, _, kind in found if kind == "Params"), None),
        aliases=frozenset(aliases),
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
    """The kernel's files as one text, with what its launch gives."""
    given = dict(kernel.given)
    formulas = tuple((name, text) for name, text in kernel.given if name.islower())
    is_true = (name for name, text in kernel.given if text == "true" or name.islower())
    files = linked(kernel.package, kernel.name, kernel.operands.union(is_true), formulas)
    text = with_overrides(kernel.name, files.text, given)
    aliases = {name: kind for name, kind in given.items() if name not in files.given}
    if unknown := aliases.keys() - (name for name, _ in _ALIAS.findall(text)):
        listed = ", ".join(sorted(unknown))
        raise ValueError(f"kernel {kernel.name} has no override, alias or formula named {listed}")
    return _ALIAS.sub(lambda found: f"alias {found[1]} = {aliases.get(found[1], found[2])};", text)


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


def _binding(
    name: str,
    index: int,
    access: Access,
    kind: str,
    constants: Mapping[str, int],
    aliases: Mapping[str, str],
) -> Binding:
    found, sized = _ELEMENT.match(kind), _SIZED.fullmatch(kind)
    element, size = found[1] if found else kind, 16 * whole_number(sized[1], constants) if sized else 0
    while of := _OTHER.fullmatch(aliases.get(element, "")):
        element = of[1]
    return Binding(name, index, access, element, size)


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
    """`Kernel(package, "binary", apply="a * b")` is the package's binary.wgsl with this formula.

    A launch gives overrides (numbers and booleans), types of aliases, and formulas: expressions for functions
    without a body, whose names are in small letters.
    """

    package: str
    name: str
    given: tuple[tuple[str, str], ...]
    operands: frozenset[str]  # that a launch binds: conditions name them

    def __init__(
        self, package: str, name: str, operands: frozenset[str] = frozenset(), /, **given: object
    ) -> None:
        self._set(package, name, tuple(sorted((key, _text(value)) for key, value in given.items())), operands)

    def _set(
        self, package: str, name: str, given: tuple[tuple[str, str], ...], operands: frozenset[str]
    ) -> None:
        object.__setattr__(self, "package", package)
        object.__setattr__(self, "name", name)
        object.__setattr__(self, "given", given)
        object.__setattr__(self, "operands", operands)

    def specialise(self, **given: object) -> Kernel:
        """The same kernel for a launch that gives more."""
        return self.launched(self.operands, given)

    def launched(self, operands: Iterable[str], given: Mapping[str, object] = _NONE) -> Kernel:
        """The same kernel for a launch that binds these operands and gives more."""
        texts = self.given
        if given:
            more = ((key, _text(value)) for key, value in given.items())
            texts = tuple(sorted({**dict(texts), **dict(more)}.items()))
        made = Kernel.__new__(Kernel)
        made._set(self.package, self.name, texts, frozenset(operands))
        return made

    def __str__(self) -> str:
        given = ", ".join(f"{name}={text}" for name, text in self.given)
        return f"{self.name}({given})" if given else self.name


@dataclass(frozen=True, slots=True)
class Kernels:
    """The kernels beside a module: `kernel = Kernels(__name__)`, then `kernel("binary", apply="a * b")`."""

    module: str

    def __call__(self, name: str, **given: object) -> Kernel:
        return Kernel(self.module.rpartition(".")[0], name, **given)


LIVE = "\u2032"  # a prime, behind the digits of a live integer that is printed


def _text(value: object) -> str:
    """What a launch gives, as text. A live integer is decided; in a text it would stay as it is now."""
    if isinstance(value, bool):
        return str(value).lower()
    text = str(index(value)) if hasattr(value, "__index__") else str(value)
    if LIVE in text:
        raise ValueError(f"{text}: the text of a kernel cannot contain a live integer")
    return text
