"""Forms that the exporter's checks accept, of each operator: ranks, element types, negative dims, optional
arguments, numbers in place of tensors. A recipe is an operator in one type, a case one of its forms.

forms.txt lists them, and says how."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, TypeAlias

import torch
from executorch.backends.vulkan.partitioner.vulkan_partitioner import VulkanPartitioner
from executorch.backends.vulkan.patterns.rope import RotaryEmbeddingPattern
from executorch.exir import to_edge_transform_and_lower
from torch.export import export

from conformance.exported import delegates_of, to_arrays
from conformance.record import Call, Case, sentence

Tensors: TypeAlias = tuple[torch.Tensor, ...]
TABLE = Path(__file__).with_name("forms.txt")
TYPES = {
    "f32": torch.float32,
    "f16": torch.float16,
    "i32": torch.int32,
    "i64": torch.int64,
    "bool": torch.bool,
}
_GROUPS = {"float": "f32 f16", "number": "f32 f16 i32 i64", "every": " ".join(TYPES)}
_TOLERANCE = {"f16": 1e-2}  # of other types: 1e-4


def window(x: torch.Tensor, table: torch.Tensor, start: torch.Tensor) -> torch.Tensor:
    """Rows of a table from a position on, as language models read theirs."""
    first = start.item()
    torch._check(first >= 0)
    torch._check(first + x.shape[0] <= table.shape[0])
    return x * table.narrow(0, first, x.shape[0])


_NAMES = {
    "torch": torch,
    "F": torch.nn.functional,
    "window": window,
    "rope": RotaryEmbeddingPattern().forward,
}


@dataclass(frozen=True, slots=True)
class Form:
    """A use of an operator: an expression of x, y, z, w, and what these are."""

    expression: str
    inputs: tuple[str, ...]
    types: tuple[str, ...] = ("f32",)

    @property
    def function(self) -> Callable[..., Any]:
        found: Callable[..., Any] = eval(
            f"lambda {', '.join('xyzw'[: len(self.inputs)])}: {self.expression}", _NAMES
        )
        return found

    def name(self, operator: str, dtype: str) -> str:
        own = TYPES[dtype]
        shapes = " ".join(
            f"{'' if each.dtype is own else each.dtype}{list(each.shape)}".removeprefix("torch.")
            for each in self.drawn(dtype)
        )
        return f"{operator}/{dtype}/{shapes}/{self.expression}"

    def drawn(self, dtype: str) -> Tensors:
        torch.manual_seed(0)
        return tuple(_drawn(each, TYPES[dtype]) for each in self.inputs)


def _drawn(text: str, dtype: torch.dtype) -> torch.Tensor:
    """An input as the table writes it."""
    if text.startswith("["):
        return torch.tensor(json.loads(text))
    kind, _, dims = text.rpartition(":")
    shape = torch.Size(map(int, dims.split("x") if dims != "-" else ()))
    name, _, below = kind.partition("<")
    if below:
        return torch.arange(shape.numel()).remainder(int(below)).reshape(shape).to(getattr(torch, name))
    if torch.bool in (dtype, getattr(torch, name, None)):
        return torch.rand(shape) > 0.5
    return (
        torch.randn(shape).to(dtype) if dtype.is_floating_point else torch.randint(-4, 5, shape, dtype=dtype)
    )


@cache
def forms() -> dict[str, list[Form]]:
    """The table, by operator."""
    found: dict[str, list[Form]] = {}
    for line in TABLE.read_text("utf-8").splitlines():
        if not line.startswith((" ", "#")):
            found[line] = made = []
        elif line.startswith(" "):
            expression, inputs, types = (*line.strip().split(" | "), "f32")[:3]
            names = " ".join(_GROUPS.get(each, each) for each in types.split())
            made.append(Form(expression, tuple(inputs.split()), tuple(names.split())))
    return found


def recipes() -> list[str]:
    """f32 of every operator, then the next type."""
    return [
        f"{operator}/{dtype}"
        for dtype in TYPES
        for operator, found in forms().items()
        if any(dtype in form.types for form in found)
    ]


def record(recipe: str) -> list[Case]:
    operator, dtype = recipe.split("/")
    found = (form for form in forms()[operator] if dtype in form.types)
    return [_case(form, form.name(operator, dtype), dtype) for form in found]


class _Module(torch.nn.Module):  # type: ignore[misc]  # torch is untyped
    def __init__(self, form: Form) -> None:
        super().__init__()
        self._function = form.function

    def forward(self, *inputs: torch.Tensor) -> Any:
        return self._function(*inputs)


def _case(form: Form, name: str, dtype: str) -> Case:
    inputs = form.drawn(dtype)
    try:
        exported = export(_Module(form), inputs)
        program = to_edge_transform_and_lower(exported, partitioner=[VulkanPartitioner()]).to_executorch()
    except Exception as error:
        return Case(name, outcome="export failed", cause=sentence(error))
    if not delegates_of(program):
        return Case(name, outcome="not delegated")
    allowed = _TOLERANCE.get(dtype, 1e-4)
    return Case(
        name, program.buffer, (Call(to_arrays(inputs), tuple(_expected(form, inputs)), allowed, allowed),)
    )


def _expected(form: Form, inputs: Tensors) -> Iterator[Any]:
    """The answers in float64, in the types that the module gives."""
    own = to_arrays(form.function(*inputs))
    precise = to_arrays(form.function(*(x.double() if x.is_floating_point() else x for x in inputs)))
    for given, answer in zip(own, precise, strict=True):
        yield answer.astype(given.dtype)
